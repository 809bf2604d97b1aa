/** Receives the frames of the Node.js kernel, and interrupts the code of the main thread. */
const fs = require('node:fs')
const inspector = require('node:inspector')
const { parentPort, workerData } = require('node:worker_threads')

const { channel, state } = workerData
/** Time for the main thread to end a call by itself, in milliseconds: it can if it waits, and not if it computes. */
const yieldMs = 100

/** Values of the state; see main.cjs. */
const { requested, terminated } = { requested: 1, terminated: 3 }

const session = new inspector.Session()
session.connectToMainThread()

let buffered = Buffer.alloc(0)

const chunk = Buffer.alloc(1 << 16)

function fill() {
  for (;;) {
    try {
      const bytes = fs.readSync(channel, chunk)
      buffered = Buffer.concat([buffered, chunk.subarray(0, bytes)])
      return bytes > 0
    } catch (error) {
      if (error.code !== 'EAGAIN') return false
      Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 5)
    }
  }
}

function receive() {
  while (!buffered.includes(10)) if (!fill()) return undefined
  const end = buffered.indexOf(10)
  const [kind, nonce, length] = buffered.toString('latin1', 0, end).split(' ')
  buffered = buffered.subarray(end + 1)
  const parts = []
  let missing = Number(length)
  while (missing > 0) {
    if (buffered.length === 0 && !fill()) return undefined
    const part = buffered.subarray(0, missing)
    parts.push(part)
    missing -= part.length
    buffered = buffered.subarray(part.length)
  }
  return { kind, nonce, payload: Buffer.concat(parts).toString() }
}

for (;;) {
  const frame = receive()
  if (frame?.kind === 'interrupt') {
    Atomics.store(state, 0, requested)
    parentPort.postMessage(frame)
    Atomics.wait(state, 0, requested, yieldMs)
    if (Atomics.compareExchange(state, 0, requested, terminated) === requested)
      session.post('Runtime.terminateExecution')
    continue
  }
  parentPort.postMessage(frame ?? { kind: 'end' })
  if (!frame) break
}
