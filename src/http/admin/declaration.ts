/** The schema of a declaration: the body of `POST /admin/v1/apply`, and the files that `glovebox apply` reads. */
import Type, { type TObject, type TSchema } from 'typebox'
import { secretForms } from '../../core/access/keys.ts'
import { oneOf, orNull } from '../schemas.ts'
import { keySettings } from './keys.ts'
import { LimitsBody } from './limits.ts'
import { hosts, places } from './secrets.ts'
import { Credential, OAuth, upstreamSettings } from './upstreams.ts'
import { volumeSettings } from './volumes.ts'

/** How a file writes what the body of a request has as plain JSON. */
export interface DeclarationForms {
  /** A text that may be a secret. */
  text(description?: string): TSchema
  /** A number of bytes. */
  bytes(schema: TSchema): TSchema
  /** The settings of a profile. */
  profile: TSchema
}

/** Plain JSON. */
const plain: DeclarationForms = {
  text: (description) => Type.String(description === undefined ? {} : { description }),
  bytes: (schema) => schema,
  profile: Type.Unsafe({
    type: 'object',
    description: 'Profile settings as in the configuration file. Omitted settings are taken from `default`.',
  }),
}

const strict = { additionalProperties: false } as const
const named = (description: string, schema: TSchema) =>
  Type.Optional(Type.Unsafe<never>({ type: 'object', description, additionalProperties: schema }))

/** Returns the schema of the organizations of a declaration, by name. */
export function declaredOrgs(forms: DeclarationForms = plain): TSchema {
  const { text, profile } = forms
  const limits = withBytes(LimitsBody, forms)
  const { name: _name, env_vars: _variables, ...key } = keySettings
  const variables = (description: string) => named(description, text())
  const org = Type.Object(
    {
      limits: Type.Optional(limits),
      secrets: named(
        'Secrets for servers that programs use, by name.',
        Type.Object({ value: text(), hosts, places: Type.Optional(places) }, strict),
      ),
      volumes: named('Volumes, by slug.', withBytes(Type.Object(volumeSettings, strict), forms)),
      profiles: named('Profiles, by name.', profile),
      upstreams: named(
        'MCP servers that keys reach through this one, by vendor/name.',
        Type.Object(
          {
            url: Type.Optional(Type.String({ description: 'Required, except for a program.' })),
            ...upstreamSettings,
            env: variables('Variables of a program.'),
            headers: variables('Sent with every request.'),
            credential: Type.Optional(
              orNull(Type.Object({ ...Credential.properties, values: Type.Array(text()) }, strict)),
            ),
            oauth: Type.Optional(
              orNull(Type.Object({ ...OAuth.properties, client_secret: Type.Optional(text()) }, strict)),
            ),
          },
          strict,
        ),
      ),
      keys: named(
        'API keys, by name.',
        Type.Object(
          {
            ...key,
            env_vars: variables('Environment variables of its runs.'),
            secret_form: Type.Optional(oneOf(secretForms, { description: 'Form of the secret of a new key.' })),
            limits: Type.Optional(limits),
          },
          strict,
        ),
      ),
      hidden_tools: Type.Optional(
        Type.Array(Type.String(), { description: 'All tools that the organization does not have.' }),
      ),
    },
    strict,
  )
  return Type.Unsafe({ type: 'object', description: 'Organizations, by name.', additionalProperties: org })
}

const withBytes = (schema: TObject, { bytes }: DeclarationForms): TObject =>
  Type.Object(
    Object.fromEntries(
      Object.entries(schema.properties).map(([name, property]) => [
        name,
        Type.Optional(name.endsWith('_bytes') ? bytes(property) : property),
      ]),
    ),
    strict,
  )
