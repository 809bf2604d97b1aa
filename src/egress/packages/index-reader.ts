import { extname } from 'node:path'
import { Worker } from 'node:worker_threads'
import type { ReadIndex } from './index-document.ts'
import type { IndexAnswer, IndexQuestion } from './index-thread.ts'

const program = new URL(`./index-thread${extname(import.meta.filename)}`, import.meta.url)
/** A document that takes longer is refused. */
const withinMs = 15_000
/** Memory for a document of the greatest size with all of its objects. */
const memoryMiB = 768
/** The thread ends when it was not used for it, and gives its memory back. */
const idleMs = 10_000

/** Reads documents of indexes one after another, on a thread. */
export class IndexReader {
  #worker: Worker | undefined
  #last: Promise<unknown> = Promise.resolve()
  #idle: NodeJS.Timeout | undefined
  #asked: PromiseWithResolvers<IndexAnswer> | undefined

  /** @throws Error when it is no document of an index, or takes too much time or memory. */
  read(question: IndexQuestion): Promise<ReadIndex> {
    const reading = this.#last.then(() => this.#ask(question))
    this.#last = reading.catch(() => undefined)
    return reading
  }

  close(): void {
    clearTimeout(this.#idle)
    void this.#worker?.terminate()
    this.#worker = undefined
  }

  async #ask(question: IndexQuestion): Promise<ReadIndex> {
    clearTimeout(this.#idle)
    this.#worker ??= this.#start()
    const worker = this.#worker
    const asked = Promise.withResolvers<IndexAnswer>()
    const timer = setTimeout(() => asked.reject(new Error('it takes too long')), withinMs)
    this.#asked = asked
    try {
      worker.postMessage(question)
      const answer = await asked.promise
      if ('problem' in answer) throw new DocumentProblem(answer.problem)
      return answer.index
    } catch (error) {
      if (!(error instanceof DocumentProblem)) this.close()
      throw error
    } finally {
      clearTimeout(timer)
      this.#asked = undefined
      this.#idle = setTimeout(() => this.close(), idleMs).unref()
    }
  }

  #start(): Worker {
    const worker = new Worker(program, { resourceLimits: { maxOldGenerationSizeMb: memoryMiB } })
    const lose = (error: Error) => {
      if (this.#worker === worker) this.#asked?.reject(error)
    }
    worker.on('message', (answer: IndexAnswer) => this.#asked?.resolve(answer))
    worker.on('error', lose)
    worker.on('exit', () => lose(new Error('the thread has ended')))
    worker.unref()
    return worker
  }
}

class DocumentProblem extends Error {}
