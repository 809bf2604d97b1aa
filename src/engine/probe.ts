import { StartRefused } from '../base/errors.ts'
import { type Language, type Limits, languages } from '../base/run.ts'
import type { JailRequest } from './jails/jail-frames.ts'
import { commandOf, fixedEnv, imagePath, type LanguageFound, supports, versionCommands } from './jails/languages.ts'
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
      const remedy = error instanceof StartRefused ? error.remedy : remedyOf((error as Error).message)
      rejected.push({ name, reason: (error as Error).message, remedy })
    }
  }
  throw new StartRefused(
    `No OCI runtime provides the required isolation. ${rejected.map(({ name, reason }) => `${name}: ${reason}`).join(' ')}`,
    [...new Set(rejected.map(({ remedy }) => remedy))].join(' '),
  )
}

/** What to do about a message of a runtime that cannot start a container. */
function remedyOf(message: string): string {
  // A user namespace can mount /proc only where nothing covers parts of that of its parent: mount_namespaces(7).
  if (/mount(?:ing)?\b.*\bproc\b.*operation not permitted/i.test(message))
    return 'Mount a whole /proc, without mounts that cover parts of it.'
  if (/pivot_root|unshare|clone|seccomp/i.test(message) && /not permitted/i.test(message))
    return 'Permit this system call. In a container, add --security-opt=seccomp=unconfined to its flags.'
  if (/permission denied/i.test(message) && /mount/i.test(message))
    return 'Permit mounts. In a container on a machine with AppArmor, add --security-opt=apparmor=unconfined to its flags.'
  return 'Look at what it says, or use another runtime.'
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
    return await findLanguages(slot, imagePath)
  } finally {
    await slot.destroy()
  }
}

/** Detects the languages of a stored image, in a slot of its own. */
export async function probeImage(host: SlotMachine): Promise<LanguageFound[]> {
  const slot = await createSlot({ ...host, languages: [] })
  try {
    slot.bind(probeLimits)
    const found = await findLanguages(slot, host.image.env.PATH ?? imagePath)
    for (const one of found) one.isPlain = one.language === 'python' && !(await loadsOurs(slot, one, host.image.env))
    return found
  } finally {
    await slot.destroy()
  }
}

/** Whether an interpreter of the image can load the shared object of the product: it may have another C library. */
async function loadsOurs(slot: Slot, found: LanguageFound, env: Readonly<Record<string, string>>): Promise<boolean> {
  const code = new TextEncoder().encode('print(6)')
  const request = { ...commandOf(found, env), env, code, stdin: undefined, limits: probeLimits }
  const { result, output } = await captured(slot, request)
  return result.ending.kind === 'exited' && result.ending.code === 0 && output === '6\n'
}

async function findLanguages(slot: Slot, searched: string): Promise<LanguageFound[]> {
  const found: LanguageFound[] = []
  for (const language of languages) {
    const one = await findLanguage(slot, language, searched)
    if (one) found.push(one)
  }
  return found
}

async function requireJail(slot: Slot): Promise<void> {
  const { result, output } = await capture(slot, ['/usr/bin/true'])
  if (result.ending.kind !== 'exited' || result.ending.code !== 0)
    throw new Error(`true ended as ${JSON.stringify(result.ending)} in a jail. ${slot.unhealthyReason ?? output}`)
}

async function findLanguage(slot: Slot, language: Language, searched: string): Promise<LanguageFound | undefined> {
  for (const { path, argv } of versionCommands(language, searched)) {
    const { result, output } = await capture(slot, argv)
    const version = output.trim().split('\n')[0]?.slice(0, 128) ?? ''
    if (result.ending.kind === 'exited' && result.ending.code === 0 && supports(language, version))
      return { language, path, version }
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
  return captured(slot, { argv, env: fixedEnv, code: new Uint8Array(), stdin: undefined, limits })
}

async function captured(slot: Slot, request: JailRequest): Promise<{ result: SlotRunResult; output: string }> {
  const chunks: Buffer[] = []
  const run = slot.execute(request, {
    running: () => undefined,
    output: (_stream, bytes) => chunks.push(Buffer.from(bytes)),
    excess: () => 0,
    image: () => undefined,
  })
  const result = await run.ended
  return { result, output: Buffer.concat(chunks).toString('utf8') }
}
