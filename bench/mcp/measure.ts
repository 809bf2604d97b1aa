import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { createInterface } from 'node:readline'
import { fileURLToPath } from 'node:url'
import { median, quantile } from '../figures.ts'
import { rssBytesOf } from '../process-figures.ts'
import { Connection } from './connection.ts'
import { type Kind, kinds } from './server.ts'

/** The figures of one server for one kind of request and number of connections. */
export interface McpFigure {
  server: string
  what: string
  connections: number
  requestsPerSecond: number
  p50Ms: number
  p99Ms: number
  /** Rate divided by that of the constant response, median of the rounds. */
  againstBare: number
  rssBytes: number
}

interface Question {
  what: string
  headers: Readonly<Record<string, string>>
  body: string
  /** Servers that support it. */
  kinds: readonly Kind[]
  /** A part of every correct response. */
  holds: string
}

const accept = 'application/json, text/event-stream'
const legacy = { accept, 'mcp-protocol-version': '2025-11-25' }
const rpc = (method: string, params: object) => JSON.stringify({ jsonrpc: '2.0', id: 1, method, params })
const call = { name: 'instant', arguments: { text: 'x' } }
const meta = {
  'io.modelcontextprotocol/protocolVersion': '2026-07-28',
  'io.modelcontextprotocol/clientCapabilities': {},
}
const modern = (method: string, name?: string) => ({
  accept,
  'mcp-protocol-version': '2026-07-28',
  'mcp-method': method,
  ...(name && { 'mcp-name': name }),
})

const both: readonly Kind[] = ['glovebox', 'sdk v2']
const questions: readonly Question[] = [
  { what: 'constant answer', headers: legacy, body: rpc('ping', {}), kinds: ['bare'], holds: 'result' },
  { what: 'ping', headers: legacy, body: rpc('ping', {}), kinds: [...both, 'sdk v1'], holds: '"result":{}' },
  { what: 'tools/list', headers: legacy, body: rpc('tools/list', {}), kinds: [...both, 'sdk v1'], holds: 'instant' },
  {
    what: 'instant tool',
    headers: legacy,
    body: rpc('tools/call', call),
    kinds: [...both, 'sdk v1'],
    holds: '"text":"x"',
  },
  {
    what: 'tools/list, stateless era',
    headers: modern('tools/list'),
    body: rpc('tools/list', { _meta: meta }),
    kinds: both,
    holds: 'instant',
  },
  {
    what: 'instant tool, stateless era',
    headers: modern('tools/call', 'instant'),
    body: rpc('tools/call', { ...call, _meta: meta }),
    kinds: both,
    holds: '"text":"x"',
  },
]

interface Served {
  kind: Kind
  url: URL
  pid: number
}

/** Measures every server in turn, a block of each per round; each is a separate process. */
export async function measureMcp(
  plan: { rounds: number; blockMs: number },
  tell: (done: string) => void,
): Promise<McpFigure[]> {
  const servers = new Map<Kind, Served & { process: ChildProcess }>()
  try {
    for (const kind of kinds) servers.set(kind, await launch(kind))
    const cells = [1, 32].flatMap((connections) =>
      questions.flatMap((question) =>
        question.kinds.map((kind) => new Cell(question, servers.get(kind)!, connections)),
      ),
    )
    for (const cell of cells) await cell.block(200)
    for (const cell of cells) cell.forget()
    for (let round = 0; round < plan.rounds; round++) {
      for (const cell of round % 2 === 0 ? cells : [...cells].reverse()) await cell.block(plan.blockMs)
      tell(`mcp, round ${round + 1} of ${plan.rounds}`)
    }
    return cells.map((cell) =>
      cell.figure(cells.find(({ kind, connections }) => kind === 'bare' && connections === cell.connections)!),
    )
  } finally {
    for (const { process } of servers.values()) process.kill('SIGKILL')
  }
}

class Cell {
  readonly kind: Kind
  readonly connections: number
  readonly #question: Question
  readonly #server: Served
  readonly #rates: number[] = []
  #latenciesMs: number[] = []
  #rssBytes = 0

  constructor(question: Question, server: Served, connections: number) {
    this.kind = server.kind
    this.connections = connections
    this.#question = question
    this.#server = server
  }

  async block(ms: number): Promise<void> {
    const { headers, body, holds } = this.#question
    const clients = Array.from({ length: this.connections }, () => new Connection(this.#server.url, headers, body))
    let count = 0
    const startedMs = performance.now()
    await Promise.all(
      clients.map(async (client) => {
        while (performance.now() - startedMs < ms) {
          const askedMs = performance.now()
          const answer = await client.ask()
          this.#latenciesMs.push(performance.now() - askedMs)
          if (count++ % 1000 === 0 && !answer.includes(holds)) throw new Error(`${this.kind} answered ${answer}`)
        }
      }),
    )
    this.#rates.push((count * 1000) / (performance.now() - startedMs))
    this.#rssBytes = rssBytesOf(this.#server.pid)
    for (const client of clients) client.close()
  }

  /** The requests before were the warm-up. */
  forget(): void {
    this.#rates.length = 0
    this.#latenciesMs = []
  }

  figure(bare: Cell): McpFigure {
    return {
      server: this.kind,
      what: this.#question.what,
      connections: this.connections,
      requestsPerSecond: median(this.#rates),
      p50Ms: median(this.#latenciesMs),
      p99Ms: quantile(this.#latenciesMs, 0.99),
      againstBare: median(this.#rates.map((rate, round) => rate / bare.#rates[round]!)),
      rssBytes: this.#rssBytes,
    }
  }
}

const program = fileURLToPath(new URL('server.ts', import.meta.url))

async function launch(kind: Kind): Promise<Served & { process: ChildProcess }> {
  const child = spawn(process.execPath, [program, kind], { stdio: ['ignore', 'pipe', 'inherit'] })
  const exited = once(child, 'exit').then(() => {
    throw new Error(`the server ${kind} did not start; its words are above`)
  })
  exited.catch(() => {})
  const [line] = (await Promise.race([once(createInterface({ input: child.stdout }), 'line'), exited])) as [string]
  return { kind, url: new URL(`${line}/mcp`), pid: child.pid!, process: child }
}
