/** A load of every kind of call, which remembers what was answered, so that it can be looked for afterwards. */
import { execute, post } from '../test/support/calls.ts'
import { openReceiver, type Receiver } from '../test/support/receiver.ts'
import { calledTool, commanded, edited, evaluated, relayed, usedOnce } from './mixed-calls.ts'

/** Something that a server answered, with how to find it again. */
export interface Fact {
  what: string
  /** Looks for it. @returns what is wrong, or nothing. */
  check(url: string): Promise<string | undefined>
}

/** What a server keeps whichever of its processes is killed. */
export const durableKinds = ['run', 'tool', 'thread', 'upload', 'webhook', 'idempotent'] as const
/** The same with sandboxes, which end with the runner, and an upstream that the server must know. */
export const allKinds = [...durableKinds, 'command', 'code', 'workspace', 'upstream', 'sandbox'] as const
export type Kind = (typeof allKinds)[number]

/** Threads that the load uses; few, so that they are mounted and unmounted meanwhile. */
const threadCount = 6
/** A webhook that failed is repeated after seconds; see `core/jobs/webhooks.ts`. */
const deliveredWithinMs = 60_000

/** Makes calls of all kinds until it is stopped. Errors are expected while processes are killed; answers are facts. */
export class MixedLoad {
  readonly facts: Fact[] = []
  calls = 0
  failures = 0
  lastFailure: unknown
  readonly #receiver: Receiver
  readonly #kinds: readonly Kind[]
  #number = 0

  private constructor(receiver: Receiver, kinds: readonly Kind[]) {
    this.#receiver = receiver
    this.#kinds = kinds
  }

  static async open(kinds: readonly Kind[] = durableKinds): Promise<MixedLoad> {
    return new MixedLoad(await openReceiver(), kinds)
  }

  close(): void {
    this.#receiver.close()
  }

  /** @param urlOf the address of the server, which changes with a restart. Ends when `stop` is aborted. */
  async run(urlOf: () => string, stop: AbortSignal, workers = 5): Promise<void> {
    const worker = async (_: unknown, index: number) => {
      for (let n = index; !stop.aborted; n++) {
        this.calls += 1
        try {
          this.facts.push(await this.#call(this.#kinds[n % this.#kinds.length]!, urlOf()))
        } catch (error) {
          this.failures += 1
          this.lastFailure = error
          await new Promise((resolve) => setTimeout(resolve, 50))
        }
      }
    }
    await Promise.all(Array.from({ length: workers }, worker))
  }

  /** @returns what was answered and is not there, after all facts were looked for. They are forgotten then. */
  async missing(url: string): Promise<string[]> {
    const wrong: string[] = []
    for (const { what, check } of this.facts.splice(0)) {
      const problem = await check(url).catch(String)
      if (problem !== undefined) wrong.push(`${what}: ${problem}`)
    }
    return wrong
  }

  #call(kind: Kind, url: string): Promise<Fact> {
    this.#number += 1
    const n = this.#number
    switch (kind) {
      case 'run':
        return ran(url, n)
      case 'tool':
        return calledTool(url, n)
      case 'command':
        return commanded(url, n)
      case 'code':
        return evaluated(url, n)
      case 'workspace':
        return edited(url, n)
      case 'upstream':
        return relayed(url, n)
      case 'sandbox':
        return usedOnce(url, n)
      case 'thread':
        return wroteInThread(url, n)
      case 'upload':
        return uploaded(url, n)
      case 'webhook':
        return this.#promised(url, n)
      case 'idempotent':
        return ranOnce(url, n)
    }
  }

  async #promised(url: string, n: number): Promise<Fact> {
    const body = { language: 'bash', code: `echo ${n}`, webhook_url: this.#receiver.url }
    const answer = await post<{ trace_id: string }>(`${url}/v1/sandbox/execute`, body, { prefer: 'respond-async' })
    if (answer.status !== 202) throw new Error(`answered ${answer.status}`)
    const { trace_id: id } = answer.body
    const isDelivered = () => this.#receiver.received.some((received) => received.body.trace_id === id)
    return {
      what: `webhook of ${id}`,
      check: async () => {
        const endMs = performance.now() + deliveredWithinMs
        while (!isDelivered() && performance.now() < endMs) await new Promise((resolve) => setTimeout(resolve, 100))
        return isDelivered() ? undefined : 'was not delivered'
      },
    }
  }
}

async function ran(url: string, n: number): Promise<Fact> {
  const [language, code] = n % 2 === 0 ? ['python', `print(${n})`] : ['bash', `echo ${n}`]
  const { trace_id: id, stdout, ending } = await execute(url, language, code)
  return {
    what: `run ${id}`,
    check: async (now) => {
      if (ending.kind === 'exited' && stdout !== `${n}\n`) return `printed ${JSON.stringify(stdout)}`
      const response = await fetch(`${now}/v1/executions/${id}`)
      const row = (await response.json()) as { status?: string }
      if (response.status !== 200) return `is answered with ${response.status}`
      return row.status === 'running' ? 'has no ending' : undefined
    },
  }
}

/** Each call writes a file of its own, so that a later one does not hide that it is missing. */
async function wroteInThread(url: string, n: number): Promise<Fact> {
  const thread = `load-${n % threadCount}`
  const { ending } = await execute(url, 'bash', `echo ${n} >file-${n}`, { thread_id: thread })
  if (ending.kind !== 'exited') throw new Error(`ended as ${ending.kind}`)
  return { what: `file-${n} of ${thread}`, check: (now) => compare(now, thread, `file-${n}`, `${n}\n`) }
}

async function uploaded(url: string, n: number): Promise<Fact> {
  const [thread, path, bytes] = [`load-${n % threadCount}`, `upload-${n}`, `bytes of ${n}`]
  const link = await linkTo(url, 'upload', { id: thread, path, size: bytes.length })
  const response = await fetch(link, { method: 'PUT', body: bytes })
  await response.arrayBuffer()
  if (response.status !== 200) throw new Error(`answered ${response.status}`)
  return { what: `${path} of ${thread}`, check: (now) => compare(now, thread, path, bytes) }
}

async function ranOnce(url: string, n: number): Promise<Fact> {
  const body = { language: 'bash', code: `echo once ${n}`, idempotency_key: `load-${process.pid}-${n}` }
  const first = await post<{ trace_id: string }>(`${url}/v1/sandbox/execute`, body)
  if (first.status !== 200) throw new Error(`answered ${first.status}`)
  return {
    what: `idempotency key ${n}`,
    check: async (now) => {
      const again = await post<{ trace_id: string }>(`${now}/v1/sandbox/execute`, body)
      return again.body.trace_id === first.body.trace_id ? undefined : `began another run (${again.status})`
    },
  }
}

async function linkTo(url: string, how: 'upload' | 'download', file: object): Promise<string> {
  const answer = await post<{ url: string }>(`${url}/v1/files/${how}`, { source: 'thread', ...file })
  if (answer.status !== 200) throw new Error(`a link was answered with ${answer.status}`)
  return answer.body.url
}

async function compare(url: string, thread: string, path: string, expected: string): Promise<string | undefined> {
  const response = await fetch(await linkTo(url, 'download', { id: thread, path }))
  const text = await response.text()
  if (response.status !== 200) return `is answered with ${response.status}`
  return text === expected ? undefined : `contains ${JSON.stringify(text.slice(0, 40))}`
}
