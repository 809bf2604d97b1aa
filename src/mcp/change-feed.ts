/** Something that a client can be notified of while it has no request open. */
export type Change =
  | { kind: 'tools' | 'prompts' | 'resources' }
  | { kind: 'resource'; uri: string }
  | { kind: 'task'; taskId: string }

/** Which changes can happen in this server. It announces a notification as a capability only where it can occur. */
export interface ChangeKinds {
  tools: boolean
  prompts: boolean
  resources: boolean
  resource: boolean
}

/** Publishes changes to its current subscribers. Keeps none for later ones. */
export class ChangeFeed {
  readonly kinds: ChangeKinds
  readonly #subscribers = new Set<(change: Change) => void>()

  /** @param kinds none by default: the lists of the product do not change while it runs. */
  constructor(kinds: ChangeKinds = { tools: false, prompts: false, resources: false, resource: false }) {
    this.kinds = kinds
  }

  publish(change: Change): void {
    for (const notify of this.#subscribers) notify(change)
  }

  /** @returns a function that ends the subscription. */
  subscribe(subscriber: (change: Change) => void): () => void {
    this.#subscribers.add(subscriber)
    return () => this.#subscribers.delete(subscriber)
  }
}
