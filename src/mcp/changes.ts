/** What a client may want to hear of while nothing of its own is going on. */
export type Change =
  | { kind: 'tools' | 'prompts' | 'resources' }
  | { kind: 'resource'; uri: string }
  | { kind: 'task'; taskId: string }

/** Which kinds can happen here at all: what never changes is never promised to be told. */
export interface ChangeKinds {
  tools: boolean
  prompts: boolean
  resources: boolean
  resource: boolean
}

/** Tells of changes to whoever listens now. Nothing is kept for later. */
export class Changes {
  readonly kinds: ChangeKinds
  readonly #listeners = new Set<(change: Change) => void>()

  /** @param kinds the product's own lists are fixed while it runs. */
  constructor(kinds: ChangeKinds = { tools: false, prompts: false, resources: false, resource: false }) {
    this.kinds = kinds
  }

  tell(change: Change): void {
    for (const listener of this.#listeners) listener(change)
  }

  /** @returns what ends the listening. */
  listen(listener: (change: Change) => void): () => void {
    this.#listeners.add(listener)
    return () => this.#listeners.delete(listener)
  }
}
