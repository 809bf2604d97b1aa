type Act = () => void

const waiting = new WeakMap<Promise<unknown>, Set<Act>>()

/**
 * Calls a function when a promise resolves, unless it was taken back before. `then` would keep the function, and all that it
 * refers to, as long as the promise: of a sandbox that lives for weeks, each of its connections.
 * @param promise that never rejects.
 * @returns a function that takes it back.
 */
export function whenResolved(promise: Promise<unknown>, act: Act): () => void {
  let acts = waiting.get(promise)
  if (acts === undefined) {
    acts = new Set()
    waiting.set(promise, acts)
    void promise.then(() => callAll(promise))
  }
  // An own one, so that the same function can be given twice.
  const own = () => act()
  acts.add(own)
  return () => void acts.delete(own)
}

function callAll(promise: Promise<unknown>): void {
  const acts = waiting.get(promise)
  waiting.delete(promise)
  for (const act of acts ?? []) act()
}
