import type { Caller } from '../core/caller.ts'
import type { Content } from './content.ts'
import type { RequestContext } from './request-context.ts'

export interface PromptListing {
  name: string
  title: string
  description: string
  arguments: { name: string; description: string; required: boolean }[]
}

export interface PromptMessage {
  role: 'user' | 'assistant'
  content: Content
}

/** A prompt that people choose in their client. */
export interface Prompt {
  readonly listing: PromptListing
  /** @param given checked: every required argument is there and all are strings. */
  get(caller: Caller, given: Readonly<Record<string, string>>, context: RequestContext): Promise<PromptMessage[]>
  /** Values of an argument that begin with what was typed. */
  complete?(caller: Caller, argument: string, typed: string): Promise<string[]>
}
