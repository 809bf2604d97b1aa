/**
 * How the supervisor passes the resolved configuration to a child: one line of JSON on its standard input, which stays
 * open. So secrets are in no argument and no environment variable, and the child notices when the supervisor is gone.
 */
import type { Readable, Writable } from 'node:stream'
import type { Config } from '../config.ts'

/** More than any configuration needs; a bound on input from an unexpected parent. */
const maxLineBytes = 4 * 1024 * 1024

/** Writes the configuration and leaves the stream open. */
export function sendConfig(stdin: Writable, config: Config): void {
  stdin.write(`${JSON.stringify(config)}\n`)
}

/**
 * Reads the configuration and leaves the stream paused after it, so that the caller can watch for its end.
 * @throws Error when the input ends early or contains something else.
 */
export async function receiveConfig(stdin: Readable): Promise<Config> {
  const chunks: Buffer[] = []
  let bytes = 0
  for await (const chunk of stdin.iterator({ destroyOnReturn: false })) {
    const buffer = Buffer.from(chunk as Uint8Array)
    const end = buffer.indexOf('\n')
    chunks.push(end < 0 ? buffer : buffer.subarray(0, end))
    bytes += buffer.length
    if (end >= 0) return JSON.parse(Buffer.concat(chunks).toString('utf8')) as Config
    if (bytes > maxLineBytes) break
  }
  throw new Error('this command is started by "glovebox serve", which passes its configuration')
}
