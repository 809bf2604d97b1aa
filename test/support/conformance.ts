import { spawn } from 'node:child_process'
import { mkdtemp, readdir, readFile, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'

interface Check {
  id: string
  status: 'SUCCESS' | 'FAILURE' | 'WARNING' | 'SKIPPED' | 'INFO'
  errorMessage?: string
}

/** The results of the official suite, by scenario. */
export interface Verdict {
  scenarios: string[]
  passed: number
  /** Every failure and warning. */
  complaints: string[]
}

const program = join(import.meta.dirname, '../../node_modules/.bin/conformance')

/**
 * Runs the official conformance suite against a running server.
 * @param which the arguments that select scenarios.
 */
export async function judge(url: string, ...which: readonly string[]): Promise<Verdict> {
  const directory = await mkdtemp(join(tmpdir(), 'glovebox-conformance-'))
  try {
    await run(program, ['server', '--url', url, '-o', directory, ...which])
    const verdict: Verdict = { scenarios: [], passed: 0, complaints: [] }
    for (const folder of await readdir(directory)) {
      const scenario = folder.replace(/^server-/, '').replace(/-\d{4}-\d{2}-\d{2}T[\d-]+Z$/, '')
      const checks = JSON.parse(await readFile(join(directory, folder, 'checks.json'), 'utf8')) as Check[]
      verdict.scenarios.push(scenario)
      for (const { id, status, errorMessage } of checks) {
        if (status === 'SUCCESS') verdict.passed++
        if (status === 'FAILURE' || status === 'WARNING') verdict.complaints.push(`${scenario} ${id}: ${errorMessage}`)
      }
    }
    return verdict
  } finally {
    await rm(directory, { recursive: true })
  }
}

/** Its report contains the failures, so the exit code is ignored. */
function run(command: string, args: readonly string[]): Promise<void> {
  return new Promise((resolve, reject) => {
    const child = spawn(process.execPath, [command, ...args], { stdio: 'ignore' })
    child.on('error', reject)
    child.on('exit', () => resolve())
  })
}
