/** The schema of the files that `glovebox apply` reads, for the command and for editors. */
import Type, { type TObject, type TSchema } from 'typebox'
import { type DeclarationForms, declaredOrgs } from '../../../http/admin/declaration.ts'
import { profileSettings } from '../../../profile-settings.ts'
import type { Setting } from '../../../setting.ts'

const reference = (name: string, description: string) =>
  Type.Object({ [name]: Type.String({ minLength: 1, description }) }, { additionalProperties: false })

const references = [
  reference('env', 'Name of a variable of the command.'),
  reference('file', 'Path of a file, relative to this one. The last line break is not part of the value.'),
]

const text = (description = 'text, or a reference {env: NAME} or {file: path}'): TSchema =>
  Type.Unsafe({ anyOf: [Type.String(), ...references], description })

const bytes = (schema: TSchema): TSchema => {
  const { description = '' } = schema as { description?: string }
  const size = { type: 'string', pattern: '^\\d+(\\.\\d+)? ?([KMGT]i?B|B)?$' }
  return Type.Unsafe({
    anyOf: [schema, size],
    description: `${description} A number of bytes, or a size such as 10GiB.`,
  })
}

/** Settings of a profile are checked with the server, which knows those that they are combined with. */
const anyProfile = Type.Unsafe({ type: 'object' })

const fileSchema = (profile: DeclarationForms['profile']): TObject =>
  Type.Object({ orgs: declaredOrgs({ text, bytes, profile }) }, { additionalProperties: false })

/** What the command checks before it asks the server. */
export const declarationSchema = fileSchema(anyProfile)

/** The same with the settings of profiles, for editors that complete and check YAML. */
export function editorSchema(): object {
  const settings = Object.entries<Setting>(profileSettings).filter(([name]) => name !== 'orgs')
  const properties = Object.fromEntries(settings.map(([name, setting]) => [name, toProperty(name, setting)]))
  const profile = Type.Unsafe({ type: 'object', additionalProperties: false, properties })
  return {
    $schema: 'https://json-schema.org/draft/2020-12/schema',
    title: 'Organizations of a Glovebox server',
    ...fileSchema(profile),
  }
}

function toProperty(name: string, { schema, unit, meaning }: Setting): TSchema {
  if (name === 'env') return Type.Unsafe({ type: 'object', additionalProperties: text(), description: meaning })
  const described = { ...schema, description: meaning }
  return unit === 'bytes' ? bytes(described) : described
}
