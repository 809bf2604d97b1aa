/** Checks of the machine that need no slot: disks, clock, kernel, and the version of the OCI runtime. */
import { readFileSync, statSync } from 'node:fs'
import { statfs } from 'node:fs/promises'
import { release } from 'node:os'
import { dirname } from 'node:path'
import type { Machine } from '../engine/machine.ts'
import type { Check } from './inspect.ts'
import { changelogOf, openEscapes } from './known-escapes.ts'

/** With less free space, the database and slots soon fail. */
const diskFreeMinBytes = 1024 ** 3
/** A slot creates some hundred files, and each thread is a file. */
const inodesFreeMin = 10_000

const inMebibytes = (bytes: number): string => `${Math.floor(bytes / 1024 ** 2)} MiB`

export function checkMemory(wantedBytes: number): Check {
  const availableKb = /^MemAvailable:\s+(\d+) kB$/m.exec(readFileSync('/proc/meminfo', 'utf8'))?.[1]
  const bytes = Number(availableKb ?? 0) * 1024
  const detail = `${inMebibytes(bytes)} available; one run can use ${inMebibytes(wantedBytes)}`
  const remedy = 'Free memory, or decrease limit_memory of the profiles.'
  return toCheck('memory', bytes >= wantedBytes, detail, remedy)
}

/** @param directories by the name of the setting that names them. */
export async function checkDisks(directories: Readonly<Record<string, string>>): Promise<Check[]> {
  const checks: Check[] = []
  for (const [setting, directory] of Object.entries(directories)) {
    const path = existing(directory)
    const { bavail, bsize, files, ffree } = await statfs(path)
    const bytes = bavail * bsize
    const remedy = `Free at least ${inMebibytes(diskFreeMinBytes)} there, or set ${setting} to a directory on another disk.`
    checks.push(
      toCheck(`disk of ${setting}`, bytes >= diskFreeMinBytes, `${inMebibytes(bytes)} free at ${path}`, remedy),
    )
    // Filesystems that create inodes as they are needed report none.
    if (files === 0) continue
    const names = `Remove files there, or set ${setting} to a directory on another disk.`
    checks.push(toCheck(`inodes of ${setting}`, ffree >= inodesFreeMin, `${ffree} free at ${path}`, names))
  }
  return checks
}

/** Returns the directory or its nearest existing parent. */
function existing(path: string): string {
  const isThere = statSync(path, { throwIfNoEntry: false }) !== undefined
  return isThere || path === dirname(path) ? path : existing(dirname(path))
}

/**
 * Links, keys and locks expire by the clock. It cannot be earlier than the program was installed.
 * @param nowMs time of the clock. @param installedMs time at which a file of the program was created.
 */
export function checkClock(nowMs: number = Date.now(), installedMs: number = installedAtMs()): Check {
  const detail = new Date(nowMs).toISOString()
  const day = 86_400_000
  const ok = nowMs > installedMs - day
  const remedy = 'Set the clock, and synchronize it: apt-get install systemd-timesyncd.'
  return toCheck('clock', ok, ok ? detail : `${detail} is before the installation of this program`, remedy)
}

const installedAtMs = (): number => statSync(new URL('../../package.json', import.meta.url)).mtimeMs

/** Idmapped mounts of ext4 and cgroup.kill are the newest that a server requires: https://lwn.net/Articles/896255/ */
const oldest = [5, 12] as const
/** What newer kernels add. */
const improvements: readonly (readonly [major: number, minor: number, what: string])[] = [
  [5, 19, 'the peak memory of runs'],
  [6, 12, 'the peak memory of each run on its own'],
]

/** @param version as `uname -r` prints it. */
export function checkKernel(version: string = release()): Check {
  const [major = 0, minor = 0] = version.split(/[.-]/).map(Number)
  const isAtLeast = (wanted: readonly [number, number, ...unknown[]]) =>
    major > wanted[0] || (major === wanted[0] && minor >= wanted[1])
  const missing = improvements.filter((one) => !isAtLeast(one)).map(([, , what]) => what)
  const detail = `Linux ${version}${missing.length > 0 ? `, without ${missing.join(' and ')}` : ''}`
  return toCheck('kernel', isAtLeast(oldest), detail, `Use Linux ${oldest.join('.')} or later.`)
}

/**
 * Reports known escapes that the runtime in use permits. It is advice, since slots are created before code of a caller
 * runs in them; their images can come from elsewhere.
 */
export async function checkEscapes({ runtime, runtimeVersion, rejected }: Machine): Promise<Check> {
  const name = 'known escapes'
  const open = openEscapes(runtime.name, runtimeVersion, await changelogOf(runtime.path))
  if (open.length === 0) return { name, ok: true, detail: `${runtimeVersion} has the corrections` }
  // A runtime that was tried and refused is no way out.
  const others = (['crun', 'runc'] as const).filter(
    (other) => other !== runtime.name && rejected.every((refused) => refused.name !== other),
  )
  const instead = others.map((other) => `, or install ${other} and set runtime to ${other}`).join('')
  const detail = `${runtimeVersion} does not have the corrections of ${open.join(', ')}`
  return { name, ok: true, detail, remedy: `Upgrade ${runtime.name}${instead}.` }
}

const toCheck = (name: string, ok: boolean, detail: string, remedy: string): Check =>
  ok ? { name, ok, detail } : { name, ok, detail, remedy }
