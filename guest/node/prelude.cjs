/**
 * What node loads with `--require`, before the code of a run, and in the workers and processes that inherit its options.
 *
 * Output: node queues what a full pipe does not take, so that a loop without a pause would fill the memory unseen, and
 * `process.exit()` would lose the rest (https://nodejs.org/api/process.html#a-note-on-process-io). Blocking, it is
 * written when it is printed, as the other languages do.
 *
 * Source text: node evaluates what it reads from `process.stdin`, in the home directory. The first stream there is the file
 * of the program, so that standard input is left for the program. A process that was started in advance first waits for a
 * newline, which says that the file is written, and that the home directory is the one of its run. Types of TypeScript are
 * replaced by blanks, so that lines and columns stay.
 *
 * The file of the program: a program that asks for it is copied to its home and started as that file (see
 * src/base/program-copy.ts). All others cannot tell: they are the main module, and workers and further processes that run
 * the original file resolve what it imports from the home.
 *
 * `require`: for code that node takes for an ES module. With it, code that mixes `require` and top-level `await` runs,
 * where only node reports that the module type is ambiguous. CommonJS code keeps its own.
 */
const fs = require('node:fs')
const Module = require('node:module')
const path = require('node:path')
const { fileURLToPath, pathToFileURL } = require('node:url')

const { createRequire, registerHooks } = Module

const home = '/home/baponi'
const directory = '/run/glovebox'
const program = `${directory}/${fs.readdirSync(directory)[0]}`

for (const name of ['stdout', 'stderr']) {
  const { get } = Object.getOwnPropertyDescriptor(process, name)
  const open = () => {
    const stream = get.call(process)
    stream._handle?.setBlocking?.(true)
    return stream
  }
  let stream
  Object.defineProperty(process, name, { configurable: true, enumerable: true, get: () => (stream ??= open()) })
}

const isEarly = process.env.GLOVEBOX_EARLY !== undefined
delete process.env.GLOVEBOX_EARLY
const isTyped = program.endsWith('.ts')
const isProgram = process.argv[1] === '-' && require('node:worker_threads').isMainThread

/** Returns the path of the copy of a program that asks for its file; `undefined` if it does not, or without room for it. */
function copyOf(text) {
  if (!/__filename|\bimport\s*\.\s*meta\b|\bargv\s*\[\s*1\s*\]/.test(text)) return undefined
  const copy = `${process.cwd()}/.glovebox-${path.basename(program)}`
  try {
    fs.rmSync(copy, { force: true })
    fs.writeFileSync(copy, text, { flag: 'wx' })
    return copy
  } catch {
    return undefined
  }
}

/** Returns TypeScript without its types; `undefined` for a text that they cannot be removed from. */
function withoutTypes(text) {
  const { emitWarning } = process
  process.emitWarning = () => undefined
  try {
    return Module.stripTypeScriptTypes(text)
  } catch {
    return undefined
  } finally {
    process.emitWarning = emitWarning
  }
}

/** A process that was started in advance removes these types, since Node.js compiles the code for it when it is first used. */
const typedExample = 'interface A { b: string }\nconst c = (d: A): string => d.b'

/** Starts the program as a file, instead of what node would evaluate: nothing, since that input never ends. */
function runAsFile(file, stdin) {
  process.argv[1] = file
  process.nextTick(() => {
    Object.defineProperty(process, 'stdin', stdin)
    for (const name of ['__filename', '__dirname']) delete globalThis[name]
    define(usualRequire)
    Module.runMain()
  })
}

if (isProgram) {
  const usual = Object.getOwnPropertyDescriptor(process, 'stdin')
  const open = () => {
    if (isEarly) {
      if (isTyped) withoutTypes(typedExample)
      fs.readSync(0, new Uint8Array(1))
      process.chdir(home)
    }
    const stream = new (require('node:stream').Readable)({ read() {} })
    const text = fs.readFileSync(program, 'utf8')
    const copy = copyOf(text)
    const plain = copy !== undefined ? undefined : isTyped ? withoutTypes(text) : text
    if (plain === undefined) {
      // Of a text whose types cannot be removed, node itself says why.
      runAsFile(copy ?? program, usual)
      return stream
    }
    stream.push(plain)
    stream.push(null)
    return stream.once('end', () => Object.defineProperty(process, 'stdin', usual))
  }
  let stream
  Object.defineProperty(process, 'stdin', { configurable: true, enumerable: true, get: () => (stream ??= open()) })
  for (const [name, value] of Object.entries({ __filename: program, __dirname: home }))
    Object.defineProperty(globalThis, name, { configurable: true, enumerable: true, get: () => value, set() {} })
} else {
  const own = pathToFileURL(program).href
  const base = pathToFileURL(`${home}/`)
  const { _nodeModulePaths: usual } = Module
  Module._nodeModulePaths = (from) => usual(from === directory ? home : from)
  registerHooks?.({
    resolve(specifier, context, next) {
      if (context.parentURL !== own) return next(specifier, context)
      const isRelative = /^[.]{1,2}(\/|$)/.test(specifier)
      if (context.conditions.includes('require'))
        return next(isRelative ? fileURLToPath(new URL(specifier, base)) : specifier, context)
      return next(specifier, { ...context, parentURL: `${base}main.mjs` })
    },
  })
}
const define = (value) =>
  Object.defineProperty(globalThis, 'require', { value, configurable: true, writable: true, enumerable: false })

const usualRequire = createRequire(`${home}/`)
if (isProgram)
  // Node assigns the function of a CommonJS program, and then the program is its main module.
  Object.defineProperty(globalThis, 'require', {
    configurable: true,
    enumerable: false,
    get: () => usualRequire,
    set(value) {
      value.main ??= globalThis.module
      process.mainModule ??= globalThis.module
      define(value)
    },
  })
else define(usualRequire)
