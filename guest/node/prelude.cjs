/**
 * What node loads with `--require`, before the code of a run.
 *
 * Output: node queues what a full pipe does not take, so that a loop without a pause would fill the memory unseen, and
 * `process.exit()` would lose the rest (https://nodejs.org/api/process.html#a-note-on-process-io). Blocking, it is
 * written when it is printed, as the other languages do.
 *
 * Input: the source text came by standard input where none was given, and a stream that has ended never says so again.
 * The program finds another that is empty.
 *
 * Home: it may have become a thread's while node waited, and the working directory is still what that covers.
 *
 * `require`: for code that node takes for an ES module. With it, code that mixes `require` and top-level `await` runs,
 * where only node reports that the module type is ambiguous. CommonJS code keeps its own.
 */
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
if (process.argv[1] === '-') {
  process.stdin.once('end', () => {
    process.chdir('/home/baponi')
    let empty
    const get = () => (empty ??= require('node:fs').createReadStream('/dev/null'))
    Object.defineProperty(process, 'stdin', { configurable: true, enumerable: true, get })
  })
}
Object.defineProperty(globalThis, 'require', {
  value: require('node:module').createRequire('/home/baponi/'),
  configurable: true,
  writable: true,
  enumerable: false,
})
