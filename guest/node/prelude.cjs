/**
 * What node loads with `--require`, before the code of a run, and in the workers and processes that inherit its options.
 *
 * Output: node queues what a full pipe does not take, so that a loop without a pause would fill the memory unseen, and
 * `process.exit()` would lose the rest (https://nodejs.org/api/process.html#a-note-on-process-io). Blocking, it is
 * written when it is printed, as the other languages do.
 *
 * Source text: node evaluates what it reads from `process.stdin`, in the home directory. The first stream there is the file
 * of the program, so that standard input is left for the program. A process that was started in advance first waits for a
 * newline, which says that the file is written, and that the home directory is the one of its run.
 *
 * `__filename`: that file, for workers and further processes that run it. They resolve what it imports from the home.
 *
 * `require`: for code that node takes for an ES module. With it, code that mixes `require` and top-level `await` runs,
 * where only node reports that the module type is ambiguous. CommonJS code keeps its own.
 */
const fs = require('node:fs')
const Module = require('node:module')
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
const isProgram = process.argv[1] === '-' && require('node:worker_threads').isMainThread
if (isProgram) {
  const usual = Object.getOwnPropertyDescriptor(process, 'stdin')
  const open = () => {
    if (isEarly) {
      fs.readSync(0, new Uint8Array(1))
      process.chdir(home)
    }
    const stream = new (require('node:stream').Readable)({ read() {} })
    stream.push(fs.readFileSync(program))
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
Object.defineProperty(globalThis, 'require', {
  value: createRequire(`${home}/`),
  configurable: true,
  writable: true,
  enumerable: false,
})
