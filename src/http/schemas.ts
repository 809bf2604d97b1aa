import Type, { type TObject, type TSchema } from 'typebox'

/** Names a schema in the OpenAPI document. */
export const named = <Schema extends TSchema>(title: string, schema: Schema): Schema => Object.assign(schema, { title })

/** A time as every answer has it. */
export const Time = Type.String({ format: 'date-time', description: 'ISO 8601, UTC.' })

/** A value of this schema, or `null`. */
export const orNull = (schema: TSchema, options: { description?: string } = {}): TSchema =>
  Type.Unsafe({ anyOf: [schema, { type: 'null' }], ...options })

export const NextCursor = orNull(Type.String(), {
  description: 'Pass it as `cursor` to get the next page; null on the last page.',
})

/** One page of a list. */
export const listOf = (item: TSchema): TObject => Type.Object({ data: Type.Array(item), next_cursor: NextCursor })

/** One of these strings. */
export const oneOf = <const Values extends readonly string[]>(values: Values, options: object = {}) =>
  Type.Unsafe<Values[number]>({ type: 'string', enum: [...values], ...options })

/**
 * Objects that a field distinguishes: https://spec.openapis.org/oas/v3.1.1.html#discriminator-object
 * @param title name of the union in the OpenAPI document.
 * @param members each with a title and, as its own field, an enumeration of the values that it has.
 */
export function union(title: string, field: string, description: string, members: readonly TObject[]): TSchema {
  const mapping = Object.fromEntries(
    members.flatMap((member) => {
      const { title: name, properties } = member as TObject & { title: string }
      const values = (properties[field] as unknown as { enum: string[] }).enum
      return values.map((value) => [value, `#/components/schemas/${name}`])
    }),
  )
  return Type.Unsafe({ title, description, oneOf: members, discriminator: { propertyName: field, mapping } })
}

/** The body of every error. */
export const ErrorBody = Type.Object(
  {
    error: Type.String({ description: 'Kind of the problem.' }),
    code: Type.Optional(
      Type.String({
        description: 'Which problem it is, as in docs/errors.md; absent where it is the same as `error`.',
      }),
    ),
    message: Type.String({ description: 'What is wrong, for people and models.' }),
    hint: Type.Optional(Type.String({ description: 'How to fix it.' })),
    problems: Type.Optional(
      Type.Array(Type.String(), {
        description:
          'With `declaration_invalid`: each mistake, as a JSON pointer into the body, a space and a sentence.',
      }),
    ),
    retry: Type.Optional(
      oneOf(['never', 'later'], {
        description: 'Whether the same request can succeed later; absent with `unauthorized`.',
      }),
    ),
  },
  { title: 'Error', description: 'The body of every error.' },
)
