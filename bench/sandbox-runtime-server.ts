/**
 * Uses `@anthropic-ai/sandbox-runtime` as a library: initialized once, then each command is
 * wrapped and spawned. One command per line on standard input, as JSON; one answer per line. Runs until its input ends.
 *   node bench/sandbox-runtime-server.ts PACKAGE-DIRECTORY     in an empty directory of its own
 */
import { spawn } from 'node:child_process'
import { readFileSync } from 'node:fs'
import { createRequire } from 'node:module'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import { pathToFileURL } from 'node:url'

export interface Asked {
  number: number
  command: string
}

export interface Answered {
  number: number
  code: number | null
  stdout: string
  stderr: string
}

/** The part of the package that is used; its own declarations are not available during type checking. */
interface SandboxManager {
  initialize(config: object): Promise<void>
  wrapWithSandbox(command: string): Promise<string>
  cleanupAfterCommand(): void
  reset(): Promise<void>
}

const directory = process.argv[2] ?? ''
const entry = createRequire(join(directory, 'package.json')).resolve('@anthropic-ai/sandbox-runtime')
const { SandboxManager: sandbox } = (await import(pathToFileURL(entry).href)) as { SandboxManager: SandboxManager }

async function run({ number, command }: Asked): Promise<Answered> {
  const child = spawn(await sandbox.wrapWithSandbox(command), { shell: true, stdio: ['ignore', 'pipe', 'pipe'] })
  const answer: Answered = { number, code: null, stdout: '', stderr: '' }
  child.stdout.setEncoding('utf8').on('data', (text: string) => (answer.stdout += text))
  child.stderr.setEncoding('utf8').on('data', (text: string) => (answer.stderr = (answer.stderr + text).slice(-500)))
  answer.code = await new Promise((resolve, reject) => child.once('error', reject).once('close', resolve))
  return answer
}

// No network and no writable files, like our default.
await sandbox.initialize({
  network: { allowedDomains: [], deniedDomains: [] },
  filesystem: { denyRead: [], allowWrite: [], denyWrite: [] },
})
const { version } = JSON.parse(
  readFileSync(join(directory, 'node_modules/@anthropic-ai/sandbox-runtime/package.json'), 'utf8'),
) as { version: string }
console.log(JSON.stringify({ version }))

let going = 0
for await (const line of createInterface({ input: process.stdin })) {
  going += 1
  run(JSON.parse(line) as Asked).then((answer) => {
    console.log(JSON.stringify(answer))
    going -= 1
    // It leaves traces of each command in its directory, which it may remove when none is running.
    if (going === 0) sandbox.cleanupAfterCommand()
  })
}
await sandbox.reset()
process.exit()
