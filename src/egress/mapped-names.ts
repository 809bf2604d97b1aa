/** Addresses of https://www.rfc-editor.org/rfc/rfc2544, which no other machine has. */
const first = 198 * 2 ** 24 + 18 * 2 ** 16 + 1
/** Beyond it the oldest names are forgotten: more than any program uses, less than memory of the broker matters. */
const namesMax = 8_192

/** The addresses that a jail is given for names, so that a connection to one shows the requested name. */
export class MappedNames {
  readonly #addresses = new Map<string, number>()
  readonly #names: string[] = []
  #next = 0

  /** The same address for the same name, unless many others were resolved since. */
  addressOf(name: string): string {
    let place = this.#addresses.get(name)
    if (place === undefined) {
      place = this.#next
      this.#next = (this.#next + 1) % namesMax
      this.#addresses.delete(this.#names[place] ?? '')
      this.#names[place] = name
      this.#addresses.set(name, place)
    }
    const number = first + place
    return [24, 16, 8, 0].map((bits) => Math.floor(number / 2 ** bits) % 256).join('.')
  }

  /** @returns undefined for an address that was not given out. */
  nameOf(address: string): string | undefined {
    const number = address.split('.').reduce((sum, part) => sum * 256 + Number(part), 0)
    return this.#names[number - first]
  }
}
