import { readlinkSync } from 'node:fs'
import { join } from 'node:path'
import { StartRefused } from '../base/errors.ts'
import { newId } from '../base/ids.ts'
import { languages } from '../base/run.ts'
import type { PeakScope } from '../engine/cgroups/cgroups.ts'
import { findPreloadProblem } from '../engine/jails/preload.ts'
import { type Machine, openMachine } from '../engine/machine.ts'
import { capture, probeLimits, usable } from '../engine/probe.ts'
import { type EngineSettings, type RuntimeName, runtimeNames } from '../engine/settings.ts'
import { createSlot } from '../engine/slots/create-slot.ts'
import type { Slot } from '../engine/slots/slot.ts'
import { checkClock, checkDisks, checkEscapes, checkKernel, checkMemory } from './inspect-machine.ts'

/** The result of one check. */
export interface Check {
  name: string
  ok: boolean
  detail: string
  /** What to do about a failure, or to improve something that works. */
  remedy?: string
}

/**
 * Checks whether this machine can run sandboxes: creates a slot, and verifies every isolation layer from inside a jail.
 * @param settings of a separate instance, so that a running server is not affected
 * @param home of the server, where its data is
 * @param memoryBytes the largest memory limit of the profiles
 * @param preloads lists of modules that profiles preload
 * @returns the results in the order of their dependencies. A missing feature of the machine is a failed check, not an
 * exception.
 */
export async function inspect(
  settings: EngineSettings,
  home: string,
  memoryBytes: number,
  preloads: readonly (readonly string[])[] = [],
): Promise<Check[]> {
  const machine = [
    ...(await attempt('kernel', () => [checkKernel()])),
    ...(await attempt('memory', () => [checkMemory(memoryBytes)])),
    ...(await attempt('disks', () => checkDisks({ home, state_dir: settings.stateDir }))),
    ...(await attempt('clock', () => [checkClock()])),
  ]
  const engine = await attempt('start', async () => {
    const host = await openMachine(settings)
    try {
      return [
        ...(await attempt('runtime', () => checkRuntimes(host, settings))),
        ...(await attempt('known escapes', async () => [await checkEscapes(host)])),
        ...checkHost(host),
        ...(await attempt('slot', () => checkSlot(host))),
        ...(await attempt('preload', () => checkPreloads(host, preloads))),
      ]
    } finally {
      await host.close()
    }
  })
  return [...engine, ...machine]
}

/** Runs some checks. Whatever prevents them is a failed check, so that the others are reported as well. */
export async function attempt(name: string, checks: () => Check[] | Promise<Check[]>): Promise<Check[]> {
  try {
    return await checks()
  } catch (error) {
    const detail = error instanceof Error ? error.message : String(error)
    const remedy =
      error instanceof StartRefused ? error.remedy : 'Correct what this message names, and run the command again.'
    return [{ name, ok: false, detail, remedy }]
  }
}

/** Reports the runtime in use, and why the others are not used. */
async function checkRuntimes(host: Machine, settings: EngineSettings): Promise<Check[]> {
  const { name, path } = host.runtime
  const others = runtimeNames.filter((other) => other !== name && host.rejected.every(({ name }) => name !== other))
  return [
    { name: 'runtime', ok: true, detail: `${name} at ${path} (${host.runtimeVersion})` },
    ...host.rejected.map(({ name, reason, remedy }) => ({ name: `not ${name}`, ok: true, detail: reason, remedy })),
    ...(await Promise.all(others.map((other) => checkOther(other, name, settings)))),
  ]
}

/** Reports a runtime that was not tried, because another one is configured or has precedence. */
async function checkOther(other: RuntimeName, used: RuntimeName, settings: EngineSettings): Promise<Check> {
  const name = `not ${other}`
  const why = settings.runtime === 'auto' ? `${used} has precedence` : `${used} is configured`
  try {
    await usable(other, join(settings.stateDir, 'runtime', other))
    return { name, ok: true, detail: `${why}; ${other} was not tried`, remedy: `To use it, set runtime to ${other}.` }
  } catch (error) {
    if (!(error instanceof StartRefused)) return { name, ok: true, detail: (error as Error).message }
    return { name, ok: true, detail: error.message, remedy: error.remedy }
  }
}

function checkHost(host: Machine): Check[] {
  const missing = languages.filter((language) => !host.languages.some((found) => found.language === language))
  return [
    checkProcessors(host),
    { name: 'cgroups', ok: true, detail: `${host.cgroups.version}, with ${host.cgroups.controllers.join(', ')}` },
    {
      name: 'languages',
      ok: host.languages.length > 0,
      detail: host.languages.map(({ version, path }) => `${version} (${path})`).join(', ') || 'none',
      ...(missing.length === 0
        ? {}
        : { remedy: `To offer ${missing.join(' and ')}, install the interpreter below /usr.` }),
    },
  ]
}

async function checkPreloads(host: Machine, preloads: readonly (readonly string[])[]): Promise<Check[]> {
  const checks: Check[] = []
  for (const modules of preloads) {
    const problem = await findPreloadProblem(host, modules)
    const name = 'preload'
    if (problem === undefined) checks.push({ name, ok: true, detail: `${modules.join(', ')} can be preloaded` })
    else
      checks.push({
        name,
        ok: false,
        detail: `${modules.join(', ')}: ${problem}`,
        remedy: 'Install the missing module below /usr, or remove it from the preload setting of the profile.',
      })
  }
  return checks
}

/** The CPU time of a run is limited in any case; this is only about what programs count. */
function checkProcessors({ cgroups: { processors } }: Machine): Check {
  const name = 'processors'
  if (processors) return { name, ok: true, detail: `runs use processors ${processors.join(', ')}` }
  return {
    name,
    ok: true,
    detail: 'no cpuset controller: programs see all processors, although their CPU time is limited',
    remedy: 'To show programs the right number, delegate the cpuset controller (docs/limits.md).',
  }
}

const peakMeanings: Readonly<Record<PeakScope, string>> = {
  run: 'peak memory is measured for each run',
  slot: 'peak memory is the maximum of all previous runs of the slot: resetting it requires Linux 6.12',
  end_of_run: 'peak memory is the memory in use at the end of the run: measuring the peak requires Linux 5.19',
}

async function checkMeasures(host: Machine): Promise<Check> {
  const cgroup = host.cgroups.create(newId('slot'))
  await cgroup.remove()
  return { name: 'measures', ok: true, detail: peakMeanings[cgroup.peakScope] }
}

async function checkSlot(host: Machine): Promise<Check[]> {
  const slot = await createSlot(host)
  try {
    slot.bind(limits)
    const started = { name: 'slot', ok: true, detail: `started in ${Math.round(slot.createdMs)} ms` }
    return [started, await checkMeasures(host), ...(await checkLayers(slot)), ...(await checkLimits(slot))]
  } finally {
    await slot.destroy()
  }
}

const limits = { ...probeLimits, memoryBytes: 64 * 1024 ** 2, timeoutMs: 5_000 }

const namespaces = ['user', 'pid', 'mnt', 'net', 'ipc', 'uts', 'cgroup']

/** Verifies the isolation layers from inside, as a program in a jail. */
async function checkLayers(slot: Slot): Promise<Check[]> {
  const links = namespaces.map((name) => `/proc/self/ns/${name}`).join(' ')
  const script = `cat /proc/self/status /proc/self/uid_map /proc/net/dev; readlink ${links}`
  const { output } = await capture(slot, ['/bin/sh', '-c', script], limits)
  const field = (name: string) => new RegExp(`^${name}:\\s+(.*)$`, 'm').exec(output)?.[1] ?? 'unknown'
  const capabilities = ['CapInh', 'CapPrm', 'CapEff', 'CapAmb', 'CapBnd'].filter((name) => !/^0+$/.test(field(name)))
  const ids = /^\s*0\s+(\d+)\s+65536$/m.exec(output)?.[1]
  const shared = namespaces.filter((name) => {
    const inside = new RegExp(`^${name}:\\[\\d+\\]$`, 'm').exec(output)?.[0]
    return inside === undefined || inside === readlinkSync(`/proc/self/ns/${name}`)
  })
  const interfaces = [...output.matchAll(/^\s*(\S+):(?:\s+\d+){16}$/gm)].map(([, name]) => name)
  const user = field('Uid').split(/\s+/)
  return [
    layer(
      'id range',
      ids !== undefined && Number(ids) > 0,
      ids === undefined
        ? 'not mapped to a separate range'
        : `user IDs 0 to 65535 are ${ids} to ${Number(ids) + 65_535} on the host`,
    ),
    layer(
      'user',
      user.every((id) => id === user[0] && id !== '0'),
      `programs run as user ${user[0]}`,
    ),
    layer(
      'capabilities',
      capabilities.length === 0,
      capabilities.length === 0 ? 'none' : `not empty: ${capabilities.join(', ')}`,
    ),
    layer('no_new_privs', field('NoNewPrivs') === '1', field('NoNewPrivs')),
    layer(
      'system calls',
      field('Seccomp') === '2' && Number(field('Seccomp_filters')) >= 2,
      `${field('Seccomp_filters')} seccomp filters: of the slot and of the jail`,
    ),
    layer(
      'namespaces',
      shared.length === 0,
      shared.length === 0 ? `separate: ${namespaces.join(', ')}` : `shared with the host: ${shared.join(', ')}`,
    ),
    layer('network', interfaces.join() === 'lo', `interfaces: ${interfaces.join(', ') || 'none'}`),
  ]
}

/** Verifies limits by exceeding them. That each run has its own cgroup is checked at every start of a run. */
async function checkLimits(slot: Slot): Promise<Check[]> {
  const greedy = await capture(slot, ['/bin/sh', '-c', 'head -c 1000000000 /dev/zero | tail'], limits)
  const slow = await capture(slot, ['/bin/sleep', '60'], { ...limits, timeoutMs: 100 })
  return [
    layer(
      'memory limit',
      greedy.result.ending.kind === 'out_of_memory',
      `a run that exceeded it ended as ${greedy.result.ending.kind}`,
    ),
    layer(
      'time limit',
      slow.result.ending.kind === 'timed_out',
      `a run that exceeded it ended as ${slow.result.ending.kind}`,
    ),
    layer('cleanup', slot.healthy, slot.unhealthyReason ?? 'no run left a process behind'),
  ]
}

function layer(name: string, ok: boolean, detail: string): Check {
  if (ok) return { name, ok, detail }
  return { name, ok, detail, remedy: 'This is a defect: do not use this machine as a server, and report it.' }
}
