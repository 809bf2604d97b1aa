/** Values of a label whose number is bounded: the first ones have their own, all further ones share `other`. */
export class BoundedLabel {
  readonly #most: number
  readonly #known = new Set<string>()

  /** @param most number of values besides `other`. */
  constructor(most: number) {
    this.#most = most
  }

  of(value: string): string {
    if (!this.#known.has(value) && this.#known.size >= this.#most) return 'other'
    this.#known.add(value)
    return value
  }
}
