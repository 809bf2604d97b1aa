/** The process: arguments, environment, signals, exit code. No other file touches them. */
import { exitCodes } from './cli/process-io.ts'
import { runProgram } from './cli/program.ts'

// Files get the mode that the code gives them, whatever umask was inherited.
process.umask(0o022)

const signals = { SIGHUP: 1, SIGINT: 2, SIGTERM: 15 } as const
const stop = new AbortController()
let repeated: ((exitCode: number) => void) | undefined
for (const [name, number] of Object.entries(signals)) {
  process.on(name, () => {
    if (!stop.signal.aborted) stop.abort(name)
    else if (repeated) repeated(128 + number)
    else process.exit(128 + number)
  })
}

// A reader that closed the pipe (`glovebox config show | head`) is not an error. A log that cannot be written, since it
// goes to a file on a full disk, must not end a server; output that cannot be written is a failure of its command.
let outputFailed = false
for (const stream of [process.stdout, process.stderr]) {
  stream.on('error', (error: NodeJS.ErrnoException) => {
    if (error.code === 'EPIPE' || stream === process.stderr) return
    if (!outputFailed) process.stderr.write(`glovebox: the output cannot be written: ${error.message}\n`)
    outputFailed = true
  })
}

const exitCode = await runProgram(process.argv.slice(2), {
  stdin: process.stdin,
  stdout: process.stdout,
  stderr: process.stderr,
  env: process.env,
  self: [process.execPath, ...process.execArgv, import.meta.filename],
  stop: stop.signal,
  onRepeatedSignal: (handle) => {
    repeated = handle
  },
  parent: process.send && {
    send: (message) => void (process.connected && process.send?.(message)),
    receive: (take) => void process.on('message', take),
    gone: new Promise((resolve) => process.once('disconnect', resolve)),
  },
})

/** How long the output of a process that was asked to end waits for its reader, in milliseconds. */
const lastOutputMs = 1_000

/** A pipe accepts what its reader has room for; process.exit would drop the rest. */
const written = (stream: NodeJS.WriteStream): Promise<void> =>
  new Promise((resolve) => {
    stream.once('close', resolve)
    stream.write('', () => resolve())
  })

const givenUp = new Promise<void>((resolve) => {
  const giveUp = () => void setTimeout(resolve, lastOutputMs)
  if (stop.signal.aborted) giveUp()
  else stop.signal.addEventListener('abort', giveUp)
})
await Promise.race([Promise.all([written(process.stdout), written(process.stderr)]), givenUp])
process.exit(outputFailed ? exitCodes.ioError : exitCode)
