import { type ChildProcess, execFile, spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import type { Contender } from './one-process-per-run.ts'
import type { Program } from './programs.ts'
import type { Answered, Asked } from './sandbox-runtime-server.ts'

const packageName = '@anthropic-ai/sandbox-runtime'
const packageVersion = '0.0.83'
const installWithinMs = 120_000
const startsWithinMs = 30_000
const serverProgram = fileURLToPath(new URL('./sandbox-runtime-server.ts', import.meta.url))

/**
 * Anthropic's sandbox for commands of Claude Code: bubblewrap, a system call filter, and network proxies,
 * initialized once in its own process. Installed for this benchmark run only.
 */
export class SandboxRuntime implements Contender {
  readonly name = `sandbox-runtime ${packageVersion}`
  readonly mark: { ancestor: number }
  readonly #server: ChildProcess
  readonly #directory: string
  readonly #waiting = new Map<number, (answer: Answered) => void>()
  #lastNumber = 0

  private constructor(server: ChildProcess, directory: string) {
    this.#server = server
    this.#directory = directory
    this.mark = { ancestor: server.pid ?? 0 }
  }

  /** @throws Error with the reason why it cannot be used here. */
  static async start(): Promise<SandboxRuntime> {
    const directory = mkdtempSync(join(tmpdir(), 'glovebox-bench-sandbox-runtime-'))
    try {
      await install(directory)
      const workDirectory = join(directory, 'work')
      mkdirSync(workDirectory)
      const server = spawn('setpriv', ['--pdeathsig', 'KILL', process.execPath, serverProgram, directory], {
        cwd: workDirectory,
        stdio: ['pipe', 'pipe', 'pipe'],
        env: { PATH: process.env.PATH, HOME: directory },
      })
      const runtime = new SandboxRuntime(server, directory)
      await runtime.#greeted()
      return runtime
    } catch (error) {
      rmSync(directory, { recursive: true, force: true })
      throw error
    }
  }

  callOf({ argv, prints }: Program): () => Promise<void> {
    const command = argv.map((word) => `'${word.replaceAll("'", `'\\''`)}'`).join(' ')
    return async () => {
      const { code, stdout, stderr } = await this.#run(command)
      if (code === 0 && stdout === prints) return
      throw new Error(`${packageName}: exited with ${code}: ${stderr.trim() || JSON.stringify(stdout.slice(0, 100))}`)
    }
  }

  async stop(): Promise<void> {
    if (this.#server.exitCode === null) {
      const ended = once(this.#server, 'exit')
      const late = setTimeout(() => this.#server.kill('SIGKILL'), startsWithinMs)
      this.#server.stdin?.end()
      await ended
      clearTimeout(late)
    }
    rmSync(this.#directory, { recursive: true, force: true })
  }

  #run(command: string): Promise<Answered> {
    const asked: Asked = { number: ++this.#lastNumber, command }
    return new Promise((resolve) => {
      this.#waiting.set(asked.number, resolve)
      this.#server.stdin?.write(`${JSON.stringify(asked)}\n`)
    })
  }

  /** Reads its first line, and answers from then on. */
  async #greeted(): Promise<void> {
    let complaint = ''
    this.#server.stderr?.setEncoding('utf8').on('data', (text: string) => (complaint = (complaint + text).slice(-500)))
    const late = setTimeout(() => this.#server.kill('SIGKILL'), startsWithinMs)
    await new Promise<void>((resolve, reject) => {
      this.#server.once('exit', (code) => reject(new Error(complaint.trim() || `it ended with ${code}`)))
      createInterface({ input: this.#server.stdout! }).on('line', (line) => {
        const said = JSON.parse(line) as Answered | { version: string }
        if ('version' in said) resolve()
        else this.#answered(said)
      })
    }).finally(() => clearTimeout(late))
  }

  #answered(answer: Answered): void {
    this.#waiting.get(answer.number)?.(answer)
    this.#waiting.delete(answer.number)
  }
}

/** @throws Error with the message of npm. */
async function install(directory: string): Promise<void> {
  writeFileSync(join(directory, 'package.json'), '{"private": true}\n')
  const words = ['install', '--save-exact', '--ignore-scripts', '--no-audit', '--no-fund', '--loglevel=error']
  try {
    await promisify(execFile)('npm', [...words, `${packageName}@${packageVersion}`], {
      cwd: directory,
      timeout: installWithinMs,
    })
  } catch (error) {
    const { stderr = '' } = error as { stderr?: string }
    throw new Error(`npm could not install it: ${(stderr || (error as Error).message).trim().slice(0, 300)}`)
  }
}
