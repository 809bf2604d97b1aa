type Json = Readonly<Record<string, unknown>>

/** Keywords whose value is a schema, a list of schemas, or schemas by name: https://json-schema.org/draft/2020-12 */
const single = ['items', 'additionalProperties']
const several = ['anyOf', 'oneOf', 'allOf']

/** Collects the schemas that have a title, so that each is described once and generated clients have a type for it. */
export class NamedSchemas {
  readonly #schemas = new Map<string, Json>()

  /** Every named schema found so far, by name. */
  get all(): Record<string, Json> {
    return Object.fromEntries([...this.#schemas].sort(([a], [b]) => (a < b ? -1 : 1)))
  }

  /**
   * Returns a schema with a reference in place of each named one in it.
   * @throws Error when two different schemas have the same name.
   */
  refer(schema: object): Json {
    const resolved = this.#within(schema as Json)
    const { title } = resolved
    if (typeof title !== 'string') return resolved
    const known = this.#schemas.get(title)
    if (known !== undefined && JSON.stringify(known) !== JSON.stringify(resolved)) {
      throw new Error(`two different schemas are named ${title}`)
    }
    this.#schemas.set(title, resolved)
    return { $ref: `#/components/schemas/${title}` }
  }

  #within(schema: Json): Json {
    const entries = Object.entries(schema).map(([keyword, value]) => {
      if (keyword === 'properties') {
        const properties = Object.entries(value as Record<string, object>)
        return [keyword, Object.fromEntries(properties.map(([name, property]) => [name, this.refer(property)]))]
      }
      if (single.includes(keyword) && typeof value === 'object') return [keyword, this.refer(value as object)]
      if (several.includes(keyword)) return [keyword, (value as object[]).map((member) => this.refer(member))]
      return [keyword, value]
    })
    return Object.fromEntries(entries) as Json
  }
}
