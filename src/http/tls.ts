import { readFileSync } from 'node:fs'
import type { RequestListener } from 'node:http'
import { createServer, type Server, type ServerOptions } from 'node:https'
import { createSecureContext } from 'node:tls'
import { StartRefused } from '../base/errors.ts'
import type { Log } from '../observe/log.ts'

/** PEM files. */
export interface TlsFiles {
  /** The certificate, followed by those of intermediate authorities. */
  certificate: string
  /** The private key. */
  key: string
}

/** How often the files are read again: programs that renew certificates replace them days before the old ones expire. */
const reloadEveryMs = 10_000
/** Time for a TLS handshake; a client that does not complete it holds a connection. */
const handshakeTimeoutMs = 10_000

/**
 * Serves HTTPS, and uses new certificates when the files change. If the new files are unusable, the server keeps the
 * certificate that it has and logs the problem once.
 */
export class TlsServer {
  readonly #files: TlsFiles
  readonly #log: Log
  readonly #timer: NodeJS.Timeout
  #loaded: string
  #server: Server | undefined
  #problem: string | undefined

  /**
   * @param everyMs how often the files are checked, in milliseconds.
   * @throws StartRefused if the files cannot be read or do not belong together.
   */
  constructor(files: TlsFiles, log: Log, everyMs = reloadEveryMs) {
    this.#files = files
    this.#log = log
    try {
      this.#loaded = fingerprintOf(checked(read(files)))
    } catch (error) {
      throw new StartRefused(
        `The TLS certificate cannot be used: ${(error as Error).message}.`,
        'Set tls_certificate and tls_key to PEM files that belong together and that the user of the API server (front_uid) can read.',
      )
    }
    this.#timer = setInterval(() => this.#reload(), everyMs).unref()
  }

  /** Creates the server. Called once. */
  create(options: ServerOptions, listener: RequestListener): Server {
    this.#server = createServer({ ...options, ...read(this.#files), handshakeTimeout: handshakeTimeoutMs }, listener)
    // A client that rejects the certificate, or does not speak TLS, is no error of the server.
    this.#server.on('tlsClientError', (_error, socket) => socket.destroy())
    return this.#server
  }

  stop(): void {
    clearInterval(this.#timer)
  }

  #reload(): void {
    try {
      const pair = read(this.#files)
      const fingerprint = fingerprintOf(pair)
      if (fingerprint !== this.#loaded) {
        this.#server?.setSecureContext(checked(pair))
        this.#loaded = fingerprint
        this.#log.info('the TLS certificate was replaced')
      }
      this.#problem = undefined
    } catch (error) {
      const { message } = error as Error
      if (this.#problem !== message) this.#log.error({ problem: message }, 'the new TLS certificate cannot be used')
      this.#problem = message
    }
  }
}

interface Pair {
  cert: string
  key: string
}

const read = ({ certificate, key }: TlsFiles): Pair => ({
  cert: readFileSync(certificate, 'utf8'),
  key: readFileSync(key, 'utf8'),
})

/** @throws Error if the two are not PEM or do not belong together. */
function checked(pair: Pair): Pair {
  createSecureContext(pair)
  return pair
}

const fingerprintOf = ({ cert, key }: Pair): string => `${cert}\n${key}`
