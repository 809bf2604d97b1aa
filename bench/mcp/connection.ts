import { connect, type Socket } from 'node:net'

const endOfHead = Buffer.from('\r\n\r\n')

/** One keep-alive connection that sends the same bytes repeatedly: a client with minimal overhead. */
export class Connection {
  readonly #socket: Socket
  readonly #request: Buffer
  #buffer: Buffer = Buffer.alloc(0)
  #answered: ((body: string) => void) | undefined
  #failed: ((error: Error) => void) | undefined

  constructor(url: URL, headers: Readonly<Record<string, string>>, body: string) {
    const all = {
      host: url.host,
      'content-type': 'application/json',
      'content-length': `${Buffer.byteLength(body)}`,
      ...headers,
    }
    const head = Object.entries(all).map(([name, value]) => `${name}: ${value}\r\n`)
    this.#request = Buffer.from(`POST ${url.pathname} HTTP/1.1\r\n${head.join('')}\r\n${body}`)
    this.#socket = connect(Number(url.port), url.hostname).setNoDelay(true)
    this.#socket.on('data', (bytes) => this.#read(bytes))
    this.#socket.on('close', () => this.#failed?.(new Error('the server closed the connection')))
    this.#socket.on('error', (error) => this.#failed?.(error))
  }

  /** @returns the body of the response. @throws Error when its status is not a success. */
  ask(): Promise<string> {
    return new Promise((resolve, reject) => {
      this.#answered = resolve
      this.#failed = reject
      this.#socket.write(this.#request)
    })
  }

  close(): void {
    this.#failed = undefined
    this.#socket.destroy()
  }

  #read(bytes: Buffer): void {
    this.#buffer = this.#buffer.length === 0 ? bytes : Buffer.concat([this.#buffer, bytes])
    const headEnd = this.#buffer.indexOf(endOfHead)
    if (headEnd === -1) return
    const head = this.#buffer.toString('latin1', 0, headEnd)
    const start = headEnd + endOfHead.length
    const length = /\r\ncontent-length: *(\d+)/i.exec(head)?.[1]
    const end = length === undefined ? this.#endOfChunks(start) : start + Number(length)
    if (end === undefined || this.#buffer.length < end) return
    const body = this.#buffer.toString('utf8', start, end)
    this.#buffer = this.#buffer.subarray(end)
    if (head.startsWith('HTTP/1.1 200')) this.#answered?.(body)
    else this.#failed?.(new Error(`${head.slice(0, 40)} ${body.slice(0, 200)}`))
  }

  #endOfChunks(start: number): number | undefined {
    const at = this.#buffer.indexOf('\r\n0\r\n\r\n', start - 2)
    return at === -1 ? undefined : at + '\r\n0\r\n\r\n'.length
  }
}
