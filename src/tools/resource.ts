import type { Profile } from '../base/profile.ts'
import type { Caller } from '../core/caller.ts'
import type { ResourceContents } from './content.ts'
import type { RequestContext } from './request-context.ts'

export interface ResourceListing {
  uri: string
  name: string
  title: string
  description: string
  mimeType: string
}

export interface Resource {
  listing(profile: Profile): ResourceListing
  read(caller: Caller, context: RequestContext): Promise<ResourceContents[]>
}

export interface TemplateListing extends Omit<ResourceListing, 'uri'> {
  uriTemplate: string
}

/** Resources that a URI names by its form. */
export interface ResourceTemplate {
  readonly listing: TemplateListing
  /** The equivalent tool: a caller that cannot use it does not see this resource. */
  readonly tool?: string
  /** @returns the contents, or `undefined` when the URI does not match or does not exist. */
  read(caller: Caller, uri: string, context: RequestContext): Promise<ResourceContents[] | undefined>
  /** Values of a variable that begin with what was typed. */
  complete?(caller: Caller, variable: string, typed: string): Promise<string[]>
}
