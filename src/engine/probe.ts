import { StartRefused } from '../base/errors.ts'
import { type Language, type Limits, languages } from '../base/run.ts'
import { fixedEnv, type LanguageFound, versionCommands } from './jails/languages.ts'
import { findProgram } from './jails/programs.ts'
import { type EngineSettings, type RuntimeName, runtimeNames } from './settings.ts'
import { createSlot, type SlotMachine } from './slots/create-slot.ts'
import { Runtime } from './slots/runtime.ts'
import type { Slot, SlotRunResult } from './slots/slot.ts'

/** A runtime that is not used, with the reason and the remedy. */
export interface RejectedRuntime {
  name: RuntimeName
  reason: string
  remedy: string
}

export interface ProbeResult {
  runtime: Runtime
  version: string
  rejected: RejectedRuntime[]
  languages: LanguageFound[]
}

/** Maximum output of a version command, in bytes. */
export const probeLimits: Limits = {
  memoryBytes: 512 * 1024 * 1024,
  cpus: 1,
  pids: 64,
  openFiles: 256,
  fileBytes: 16 * 1024 * 1024,
  tmpBytes: 16 * 1024 * 1024,
  homeBytes: 16 * 1024 * 1024,
  outputSoftBytes: 64 * 1024,
  outputHardBytes: 64 * 1024,
  timeoutMs: 20_000,
}

/**
 * Selects the runtime: the first that starts a slot and runs `true` in a jail with verified limits.
 * @throws StartRefused if none passes, with the reason for each.
 */
export async function probe(
  wanted: EngineSettings['runtime'],
  host: Omit<SlotMachine, 'runtime' | 'languages'>,
  rootDir: (name: RuntimeName) => string,
): Promise<ProbeResult> {
  const rejected: RejectedRuntime[] = []
  for (const name of wanted === 'auto' ? runtimeNames : [wanted]) {
    try {
      const runtime = await usable(name, rootDir(name))
      const found = await tryOut({ ...host, runtime, languages: [] })
      return { runtime, version: await runtime.version(), rejected, languages: found }
    } catch (error) {
      const remedy = error instanceof StartRefused ? error.remedy : `Look at what it says, or use another runtime.`
      rejected.push({ name, reason: (error as Error).message, remedy })
    }
  }
  throw new StartRefused(
    `No OCI runtime provides the required isolation. ${rejected.map(({ name, reason }) => `${name}: ${reason}`).join(' ')}`,
    [...new Set(rejected.map(({ remedy }) => remedy))].join(' '),
  )
}

/**
 * Checks a runtime without starting a container.
 * @param root directory for the state of its containers.
 * @throws StartRefused if it is not installed or not supported.
 */
export async function usable(name: RuntimeName, root: string): Promise<Runtime> {
  const path = await findProgram(name)
  if (path === undefined)
    throw new StartRefused(`It is not installed.`, `Install ${name}, for example: apt-get install ${name}.`)
  const runtime = new Runtime(name, path, root)
  // Identified by its output, not by its file name.
  if ((await runtime.version()).startsWith('runsc'))
    throw new StartRefused(
      'gVisor keeps the processes of a slot inside its own kernel, where the host cannot put one run under its own memory, process and CPU limits.',
      'Use crun or runc.',
    )
  return runtime
}

/** Creates a slot, verifies its isolation, and detects its languages. */
async function tryOut(host: SlotMachine): Promise<LanguageFound[]> {
  const slot = await createSlot(host)
  try {
    slot.bind(probeLimits)
    await requireJail(slot)
    const found: LanguageFound[] = []
    for (const language of languages) {
      const one = await findLanguage(slot, language)
      if (one) found.push(one)
    }
    return found
  } finally {
    await slot.destroy()
  }
}

async function requireJail(slot: Slot): Promise<void> {
  const { result, output } = await capture(slot, ['/usr/bin/true'])
  if (result.ending.kind !== 'exited' || result.ending.code !== 0)
    throw new Error(`true ended as ${JSON.stringify(result.ending)} in a jail. ${slot.unhealthyReason ?? output}`)
}

async function findLanguage(slot: Slot, language: Language): Promise<LanguageFound | undefined> {
  for (const { path, argv } of versionCommands(language)) {
    const { result, output } = await capture(slot, argv)
    if (result.ending.kind === 'exited' && result.ending.code === 0)
      return { language, path, version: output.trim().split('\n')[0] ?? '' }
    if (!slot.healthy) throw new Error(`the slot did not survive ${argv.join(' ')}: ${slot.unhealthyReason}`)
  }
  return undefined
}

/** Runs a program to its end. @returns its output on both streams, at most the hard limit of each. */
export async function capture(
  slot: Slot,
  argv: readonly string[],
  limits: Limits = probeLimits,
): Promise<{ result: SlotRunResult; output: string }> {
  const chunks: Buffer[] = []
  const request = { argv, env: fixedEnv, code: new Uint8Array(), stdin: undefined, limits }
  const run = slot.execute(request, {
    running: () => undefined,
    output: (_stream, bytes) => chunks.push(Buffer.from(bytes)),
    image: () => undefined,
  })
  const result = await run.ended
  return { result, output: Buffer.concat(chunks).toString('utf8') }
}
