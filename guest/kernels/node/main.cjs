/**
 * The Node.js kernel: runs code that arrives on descriptor 3 and keeps the state of the interpreter between calls.
 * guest/kernels/PROTOCOL.md specifies the frames; reader.cjs receives them in a thread of its own, so that it can
 * interrupt code that does not return.
 *
 * Code is evaluated in the REPL mode of V8, through the inspector: `const` and `let` can be declared again, `await` works
 * at the top level, and the result is the value of the last expression. `import` is not available there, so that
 * declarations and calls of it are rewritten; see rewrite.cjs.
 */
const fs = require('node:fs')
const inspector = require('node:inspector')
const Module = require('node:module')
const os = require('node:os')
const path = require('node:path')
const util = require('node:util')
const { Worker } = require('node:worker_threads')
const { globals, rewritten } = require('./rewrite.cjs')

const channel = 3
const bundleMaxBytes = 8 << 20
const textMax = 1 << 20
const realExit = process.reallyExit.bind(process)

/** Thrown by `process.exit`, which ends the call and not the kernel. */
class Exit {
  constructor(code) {
    this.code = code
  }
}

function writeAll(descriptor, data) {
  let rest = Buffer.from(data)
  while (rest.length > 0) {
    try {
      rest = rest.subarray(fs.writeSync(descriptor, rest))
    } catch (error) {
      if (error.code !== 'EAGAIN') throw error
      Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 1)
    }
  }
}

const send = (kind, nonce, payload = '') => {
  const bytes = Buffer.from(payload)
  writeAll(channel, Buffer.concat([Buffer.from(`${kind} ${nonce} ${bytes.length}\n`), bytes]))
}

const mark = (nonce) => {
  for (const descriptor of [1, 2]) writeAll(descriptor, `\x1e${nonce}\x1e`)
}

const { emitWarning } = process
process.emitWarning = (warning, ...rest) => {
  // This file uses it, not the code.
  if (!String(warning).includes('vm.USE_MAIN_CONTEXT_DEFAULT_LOADER')) emitWarning.call(process, warning, ...rest)
}

// Node queues what a full pipe does not take: a loop without a pause would fill the memory.
for (const stream of [process.stdout, process.stderr]) stream._handle?.setBlocking?.(true)

/** Standard input of each call: nothing, or what the call brings. Descriptor 0 is the lowest free one once it is closed. */
let isInputGiven = false
let stdin
Object.defineProperty(process, 'stdin', {
  configurable: true,
  enumerable: true,
  get: () => (stdin ??= Object.assign(fs.createReadStream(null, { fd: 0, autoClose: false }), { fd: 0, isTTY: false })),
})

function setInput(base64) {
  stdin = undefined
  if (base64 === undefined && !isInputGiven) return
  isInputGiven = base64 !== undefined
  let file = '/dev/null'
  if (isInputGiven) {
    file = path.join(os.tmpdir(), `.glovebox-stdin-${process.pid}`)
    fs.writeFileSync(file, Buffer.from(base64, 'base64'), { mode: 0o600 })
  }
  try {
    fs.closeSync(0)
  } catch {}
  fs.openSync(file, 'r')
  if (isInputGiven) fs.unlinkSync(file)
}

const requires = new Map()
function requireHere() {
  const directory = process.cwd()
  if (!requires.has(directory)) requires.set(directory, Module.createRequire(path.join(directory, 'call.js')))
  return requires.get(directory)
}

const define = (name, value) =>
  Object.defineProperty(globalThis, name, { value, configurable: true, writable: true, enumerable: false })

const ourRequire = (id) => requireHere()(id)
ourRequire.resolve = (...args) => requireHere().resolve(...args)
ourRequire.cache = Module._cache
define('require', ourRequire)
define('module', { exports: {} })
define('exports', globalThis.module.exports)
for (const [name, value] of Object.entries(globals)) define(name, value)
define('display', (value, { raw = false } = {}) => show(raw ? value : representations(value), false))
for (const property of ['__dirname', '__filename'])
  Object.defineProperty(globalThis, property, {
    configurable: true,
    enumerable: false,
    get: () => (property === '__dirname' ? process.cwd() : path.join(process.cwd(), 'call.js')),
    set: (value) => define(property, value),
  })

const session = new inspector.Session()
session.connect()
const post = (method, parameters) =>
  new Promise((resolve, reject) =>
    session.post(method, parameters, (error, value) => (error ? reject(error) : resolve(value))),
  )

let handed
define('__glovebox_take__', (value) => {
  handed = value
})

/** Returns the value that an answer of the inspector stands for. */
async function realValue(remote) {
  if ('value' in remote || remote.type === 'undefined') return remote.value
  const { result } = await post('Runtime.evaluate', { expression: 'globalThis', objectGroup: 'call' })
  const { objectId, unserializableValue } = remote
  await post('Runtime.callFunctionOn', {
    objectId: result.objectId,
    functionDeclaration: 'function (value) { __glovebox_take__(value) }',
    arguments: [objectId ? { objectId } : { unserializableValue }],
  })
  const value = handed
  handed = undefined
  return value
}

/** The call that runs: its nonce, and what ends it. */
let current
let count = 0
/** What becomes of an interrupt: none, requested by the reader, accepted here, or the reader terminates what runs. */
const state = new Int32Array(new SharedArrayBuffer(4))
const { idle, accepted } = { idle: 0, accepted: 2 }
const setState = (value) => {
  Atomics.store(state, 0, value)
  Atomics.notify(state, 0)
}

async function evaluate(request, name) {
  const { expression, isWaiting } = rewritten(request.code, request.typescript)
  const answer = await post('Runtime.evaluate', {
    expression: `${expression}\n//# sourceURL=${name}`,
    replMode: true,
    objectGroup: 'call',
  })
  if (answer.exceptionDetails) {
    const { exception, lineNumber } = answer.exceptionDetails
    const error = exception ? await realValue(exception) : new Error(answer.exceptionDetails.text)
    const isUnparsed =
      util.types.isNativeError(error) && error.name === 'SyntaxError' && !/^\s+at .*call-\d+\.js/m.test(error.stack)
    throw { thrown: error, where: isUnparsed ? sourceLine(request.code, name, lineNumber) : '' }
  }
  let value = await realValue(answer.result)
  if (isWaiting) value = (await value)?.value
  // A program that ends with `main()` has ended when its promise has.
  return { value: util.types.isPromise(value) ? await value : value }
}

const sourceLine = (code, name, line) => `${name}:${line + 1}\n${code.split('\n')[line] ?? ''}\n\n`

async function run(nonce, request) {
  count += 1
  setInput(request.stdin)
  const before = {}
  for (const [variable, value] of Object.entries(request.env ?? {})) {
    before[variable] = process.env[variable]
    process.env[variable] = value
  }
  let end
  const ended = new Promise((resolve) => {
    end = resolve
  })
  current = { nonce, end }
  evaluate(request, `call-${count}.js`).then(end, (error) =>
    end(error && Object.hasOwn(Object(error), 'thrown') ? error : { thrown: error, where: '' }),
  )
  const outcome = await ended
  const answer = Atomics.load(state, 0) !== idle ? { interrupted: true } : answerOf(outcome)
  current = undefined
  for (const [variable, value] of Object.entries(before))
    if (value === undefined) delete process.env[variable]
    else process.env[variable] = value
  session.post('Runtime.releaseObjectGroup', { objectGroup: 'call' })
  setState(idle)
  mark(nonce)
  send('ended', nonce, JSON.stringify(answer))
}

function answerOf(outcome) {
  if (!('thrown' in outcome)) {
    if (outcome.value === undefined) return {}
    define('_', outcome.value)
    try {
      show(representations(outcome.value), true)
      return {}
    } catch (error) {
      return answerOf({ thrown: error, where: '' })
    }
  }
  const { thrown, where } = outcome
  if (thrown instanceof Exit) return { exited: thrown.code }
  const isError = util.types.isNativeError(thrown)
  return {
    error: {
      name: isError ? String(thrown.name) : typeof thrown,
      message: (isError ? String(thrown.message) : inspected(thrown)).slice(0, 100_000),
      traceback: `${where}${isError ? '' : 'Uncaught '}${withoutOurFrames(inspected(thrown))}\n`.slice(0, 200_000),
    },
  }
}

function inspected(value) {
  try {
    return util.inspect(value)
  } catch (error) {
    return `[a value that cannot be shown: ${error?.message}]`
  }
}

/** Removes the frames below the code: those of the inspector and of this file. */
function withoutOurFrames(text) {
  let isOurs = false
  const lines = text.split('\n').filter((line) => {
    if (!/^\s+at /.test(line)) isOurs = false
    else if (line.includes('node:inspector') || line.includes(__dirname)) isOurs = true
    return !isOurs
  })
  return lines.join('\n')
}

function representations(value) {
  const own = Object(value)[Symbol.for('Jupyter.display')]
  const bundle = typeof own === 'function' ? own.call(value) : undefined
  return { 'text/plain': util.inspect(value), ...(bundle && typeof bundle === 'object' ? bundle : {}) }
}

function show(bundle, result) {
  if (!current) return
  const data = {}
  const base64 = []
  let size = 0
  for (const [kind, content] of Object.entries(bundle)) {
    let text = typeof content === 'string' ? content : undefined
    if (ArrayBuffer.isView(content)) {
      text = Buffer.from(content.buffer, content.byteOffset, content.byteLength).toString('base64')
      base64.push(kind)
    }
    text ??= JSON.stringify(content) ?? 'null'
    if (kind === 'text/plain' && text.length > textMax)
      text = `${text.slice(0, textMax)}\n… (${text.length} characters in all)`
    size += text.length
    if (size <= bundleMaxBytes) data[kind] = text
  }
  send('display', current.nonce, JSON.stringify({ data, base64: base64.filter((kind) => kind in data), result }))
}

process.exit = (code = process.exitCode) => {
  const exit = new Exit(Number(code ?? 0) & 0xff)
  process.exitCode = undefined
  current?.end({ thrown: exit, where: '' })
  throw exit
}
process.reallyExit = process.exit

const report = (error) => {
  if (error instanceof Exit || Atomics.load(state, 0) !== idle) return
  if (current) current.end({ thrown: error, where: '' })
  else writeAll(2, `Uncaught ${withoutOurFrames(inspected(error))}\n`)
}
process.on('uncaughtException', report)
process.on('unhandledRejection', report)
process.on('SIGINT', () => undefined)

const reader = new Worker(path.join(__dirname, 'reader.cjs'), {
  workerData: { channel, state },
  execArgv: [],
  stdout: false,
  resourceLimits: { maxOldGenerationSizeMb: 64, maxYoungGenerationSizeMb: 4 },
})
process.execArgv.length = 0
process.argv.splice(1)
reader.on('message', ({ kind, nonce, payload }) => {
  if (kind === 'call') void run(nonce, JSON.parse(payload))
  else if (kind === 'sync') {
    mark(nonce)
    send('synced', nonce)
  } else if (kind === 'interrupt') {
    if (current?.nonce !== nonce) setState(idle)
    else {
      setState(accepted)
      current.end({ value: undefined })
    }
  } else if (kind === 'end') realExit(0)
})
send('ready', '0', JSON.stringify({ version: process.versions.node }))
