import { type ChildProcess, execFile, spawn } from 'node:child_process'
import { once } from 'node:events'
import { chmodSync, mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { Agent, type IncomingHttpHeaders, request } from 'node:http'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import { setTimeout as sleep } from 'node:timers/promises'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import { type Process, processes } from './process-figures.ts'

/** The part of the tool result that a benchmark reads. */
export interface Answer {
  stdout: string
  stdout_bytes: number
  ending: { kind: string; code?: number }
  timings: { queue_ms: number; slot_ms: number; jail_ms: number; host_ms: number; run_ms: number; drain_ms: number }
}

const entry = fileURLToPath(new URL('../src/main.ts', import.meta.url))
const readyWithinMs = 30_000
const endsWithinMs = 30_000
/** Slots are made one after the other, each in less than this. */
const readyAgainMs = 300

/** The outcome of one call, of any kind. */
export interface Outcome {
  status: number
  /** For a refusal with a retry delay. */
  retryAfterS: number | undefined
}

/** The real binary, started as an operator would, in its own directories. */
export class GloveboxServer {
  readonly url: string
  readonly startToReadyMs: number
  readonly #process: ChildProcess
  readonly #directory: string
  readonly #agent = new Agent({ keepAlive: true, maxSockets: 64 })
  /** For calls at a fixed rate, whether or not earlier ones were answered. */
  readonly #openAgent = new Agent({ keepAlive: true })

  private constructor(process: ChildProcess, directory: string, url: string, startToReadyMs: number) {
    this.#process = process
    this.#directory = directory
    this.url = url
    this.startToReadyMs = startToReadyMs
  }

  /**
   * Starts it and waits until it can take runs.
   * @param flags of `glovebox serve`, besides those that separate it from every other instance.
   * @throws Error with its output, when it does not start.
   */
  static async start(flags: readonly string[]): Promise<GloveboxServer> {
    const directory = mkdtempSync(join(tmpdir(), 'glovebox-bench-'))
    chmodSync(directory, 0o711) // Slots need access to their roots below it.
    const own = [...whereIs(directory), '--log-format', 'json']
    const startedMs = performance.now()
    // Ends with the benchmark, however that ends.
    const words = ['--pdeathsig', 'TERM', process.execPath, entry, 'serve', '--dev', '--port', '0', ...own, ...flags]
    const child = spawn('setpriv', words, {
      stdio: ['ignore', 'ignore', 'pipe'],
      env: { PATH: process.env.PATH, LANG: 'C.UTF-8', GLOVEBOX_STRUCTURED_RESULTS: 'true' },
    })
    try {
      const url = await addressOf(child)
      while ((await send('GET', `${url}/readyz`, undefined, undefined)).status !== 200) await sleep(5)
      return new GloveboxServer(child, directory, url, performance.now() - startedMs)
    } catch (error) {
      await end(child)
      rmSync(directory, { recursive: true, force: true })
      throw error
    }
  }

  /** Runs code through MCP, optionally in a thread. @returns the tool result, for every ending. */
  async callTool(code: string, language: string, thread?: string): Promise<Answer> {
    const params = {
      name: 'sandbox_execute',
      arguments: { code, language, timings: true, ...(thread && { thread_id: thread }) },
    }
    const { status, body } = await send(
      'POST',
      `${this.url}/mcp`,
      JSON.stringify({ jsonrpc: '2.0', id: 1, method: 'tools/call', params }),
      this.#agent,
    )
    const answer = JSON.parse(body) as { result?: { structuredContent?: Answer } }
    const content = answer.result?.structuredContent
    if (!content) throw new Error(`the tool answered ${status}: ${body.slice(0, 300)}`)
    return content
  }

  /** Runs code through REST. */
  async execute(code: string, language: string): Promise<Answer> {
    const body = JSON.stringify({ code, language })
    const answered = await send('POST', `${this.url}/v1/sandbox/execute`, body, this.#agent)
    if (answered.status !== 200) throw new Error(`REST answered ${answered.status}: ${answered.body.slice(0, 300)}`)
    return JSON.parse(answered.body) as Answer
  }

  /** Calls any operation. @returns the body of its answer. @throws Error for a status of 400 or more. */
  async call(method: string, path: string, body?: object): Promise<unknown> {
    const answered = await send(method, `${this.url}${path}`, body && JSON.stringify(body), this.#agent)
    if (answered.status >= 400) throw new Error(`${path} answered ${answered.status}: ${answered.body.slice(0, 300)}`)
    return answered.body === '' ? undefined : JSON.parse(answered.body)
  }

  /** Waits until its slots are ready again. */
  async idle(): Promise<void> {
    await sleep(readyAgainMs)
  }

  /** Runs code through REST with a key, or without one in development mode. Waits only for its response. */
  async attempt(code: string, language: string, key?: string): Promise<Outcome> {
    const body = JSON.stringify({ code, language })
    const more = key === undefined ? {} : { authorization: `Bearer ${key}` }
    const { status, headers } = await send('POST', `${this.url}/v1/sandbox/execute`, body, this.#openAgent, more)
    const retryAfter = headers['retry-after']
    return { status, retryAfterS: retryAfter === undefined ? undefined : Number(retryAfter) }
  }

  /** Creates a key as an operator would. @returns its secret. */
  async newKey(org: string): Promise<string> {
    const words = ['keys', 'create', '--org', org, '--profile', 'default', ...whereIs(this.#directory)]
    return (await promisify(execFile)(process.execPath, [entry, ...words])).stdout.trim()
  }

  /** Lets the organization of development mode have any number of sandboxes. */
  async liftLimits(): Promise<void> {
    // "none" would be the default of the server.
    const limits = [
      '--sandboxes',
      '1000',
      '--sandbox-memory-bytes',
      String(2 ** 40),
      '--sandbox-disk-bytes',
      String(2 ** 43),
    ]
    const words = ['limits', '--org', 'Development', ...limits, ...whereIs(this.#directory)]
    await promisify(execFile)(process.execPath, [entry, ...words])
  }

  /** The front and the runner, found by their parent process. */
  parts(): { front: number; runner: number } {
    const children = processes().filter(({ parent }) => parent === this.#process.pid)
    const pidOf = (name: string) => children.find(({ words }) => words.at(-1) === name)?.pid
    const [front, runner] = [pidOf('front'), pidOf('runner')]
    if (front === undefined || runner === undefined) throw new Error('front and runner were not found')
    return { front, runner }
  }

  /** The processes of each of its slots. */
  slots(): Process[][] {
    const within = new RegExp(`/${this.instanceId}/([^/\n]+)/`)
    const slots = Object.groupBy(processes(), ({ cgroups }) => within.exec(cgroups)?.[1] ?? '')
    return Object.entries(slots).flatMap(([slot, members]) => (slot === '' || !members ? [] : [members]))
  }

  get instanceId(): string {
    return readFileSync(join(this.#directory, 'home', 'instance'), 'utf8').trim()
  }

  /** Stops it as an operator would. */
  async stop(): Promise<void> {
    this.#agent.destroy()
    this.#openAgent.destroy()
    await end(this.#process)
    rmSync(this.#directory, { recursive: true, force: true })
  }
}

const whereIs = (directory: string): string[] => [
  ...['--home', join(directory, 'home'), '--state-dir', join(directory, 'state')],
]

/** Reads its log up to the line with the address, and discards the rest. */
async function addressOf(child: ChildProcess): Promise<string> {
  const said: string[] = []
  const timer = setTimeout(() => child.kill('SIGTERM'), readyWithinMs)
  try {
    return await new Promise<string>((resolve, reject) => {
      createInterface({ input: child.stderr! }).on('line', (line) => {
        const match = /"url":"(http:[^"]+)"/.exec(line)
        if (match) resolve(match[1]!)
        said.push(line)
        if (/"level":"(warn|error|fatal)"/.test(line)) process.stderr.write(`server log: ${line}\n`)
        said.splice(0, said.length - 20)
      })
      child.once('exit', (code) => reject(new Error(`glovebox serve ended with ${code}:\n${said.join('\n')}`)))
    })
  } finally {
    clearTimeout(timer)
  }
}

async function end(child: ChildProcess): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null) return
  const ended = once(child, 'exit')
  const timer = setTimeout(() => child.kill('SIGKILL'), endsWithinMs)
  child.kill('SIGTERM')
  await ended
  clearTimeout(timer)
}

function send(method: string, url: string, body: string | undefined, agent: Agent | undefined, more: object = {}) {
  return new Promise<{ status: number; headers: IncomingHttpHeaders; body: string }>((resolve, reject) => {
    const json = body === undefined ? {} : { 'content-type': 'application/json', accept: 'application/json' }
    const headers = { ...json, ...more }
    const sent = request(url, { method, headers, ...(agent && { agent }) }, (response) => {
      const chunks: Buffer[] = []
      response.on('data', (chunk: Buffer) => chunks.push(chunk))
      response.on('error', reject)
      response.on('end', () => {
        resolve({
          status: response.statusCode ?? 0,
          headers: response.headers,
          body: Buffer.concat(chunks).toString('utf8'),
        })
      })
    })
    sent.on('error', reject)
    sent.end(body)
  })
}
