import { setFlagsFromString } from 'node:v8'
import { runInNewContext } from 'node:vm'
import { expect, it } from 'vitest'
import { whenResolved } from '../../../src/base/when-resolved.ts'

setFlagsFromString('--expose-gc')
const collect = runInNewContext('gc') as () => void

it('calls each function once when the promise resolves, also one that comes later, and none that was taken back', async () => {
  const { promise, resolve } = Promise.withResolvers<void>()
  const called: string[] = []
  const act = () => void called.push('both')
  whenResolved(promise, act)
  whenResolved(promise, act)
  whenResolved(promise, () => called.push('taken back'))()
  const own = whenResolved(promise, () => called.push('own'))
  resolve()
  await promise
  expect(called).toEqual(['both', 'both', 'own'])
  own()
  whenResolved(promise, () => called.push('late'))
  await promise
  expect(called).toEqual(['both', 'both', 'own', 'late'])
})

it('keeps nothing of a function that was taken back, in contrast to the promise itself', async () => {
  const { promise } = Promise.withResolvers<void>()
  const used = (register: (act: () => void) => void) => {
    const connection = { bytes: Buffer.alloc(1024) }
    register(() => void connection.bytes.fill(1))
    return new WeakRef(connection)
  }
  const hundred = (register: (act: () => void) => void) => Array.from({ length: 100 }, () => used(register))
  const kept = hundred((act) => void promise.then(act))
  const forgotten = hundred((act) => whenResolved(promise, act)())
  for (let round = 0; round < 3; round++) {
    await new Promise(setImmediate)
    collect()
  }
  const left = (all: WeakRef<object>[]) => all.filter((one) => one.deref() !== undefined).length
  // Of the last one, a register of the engine may still know.
  expect(left(forgotten)).toBeLessThan(10)
  expect(left(kept)).toBe(100)
  expect(promise).toBeInstanceOf(Promise)
})
