/** Known escapes from containers by OCI runtime, and whether the installed one has the corrections. */
import { execFile } from 'node:child_process'
import { readFileSync } from 'node:fs'
import { promisify } from 'node:util'
import { gunzipSync } from 'node:zlib'

export interface Escape {
  id: string
  /** The first corrected version of each release series, oldest first. */
  fixed: readonly string[]
}

/**
 * By runtime; others have none that applies here. crun is not affected by those of 2025:
 * https://github.com/containers/crun/issues/1906
 */
export const escapes: Readonly<Record<string, readonly Escape[]>> = {
  runc: [
    { id: 'CVE-2019-5736', fixed: ['1.0.0'] },
    { id: 'CVE-2021-30465', fixed: ['1.0.0'] },
    { id: 'CVE-2024-21626', fixed: ['1.1.12'] },
    { id: 'CVE-2025-31133', fixed: ['1.2.8', '1.3.3', '1.4.0'] },
    { id: 'CVE-2025-52565', fixed: ['1.2.8', '1.3.3', '1.4.0'] },
    { id: 'CVE-2025-52881', fixed: ['1.2.8', '1.3.3', '1.4.0'] },
  ],
  crun: [{ id: 'CVE-2019-18837', fixed: ['0.10.5'] }],
}

/**
 * Returns the escapes that a runtime still permits.
 * @param version as the runtime prints it.
 * @param changelog of its package: distributions add corrections to older versions, and name them there.
 */
export function openEscapes(runtime: string, version: string, changelog = ''): string[] {
  const installed = numbersOf(version)
  if (installed === undefined) return []
  return (escapes[runtime] ?? [])
    .filter(({ id, fixed }) => !isFixed(installed, fixed) && !changelog.includes(id))
    .map(({ id }) => id)
}

type Version = readonly [major: number, minor: number, patch: number]

/** A version is corrected if its series has the correction, or if it is newer than every series that needed one. */
function isFixed(installed: Version, fixed: readonly string[]): boolean {
  const firsts = fixed.map(numbersOf).filter((first) => first !== undefined)
  const ofSeries = firsts.find((first) => first[0] === installed[0] && first[1] === installed[1])
  const needed = ofSeries ?? firsts.at(-1)
  return needed !== undefined && compare(installed, needed) >= 0
}

function numbersOf(text: string): Version | undefined {
  const found = /(\d+)\.(\d+)(?:\.(\d+))?/.exec(text)
  return found ? [Number(found[1]), Number(found[2]), Number(found[3] ?? 0)] : undefined
}

const compare = (one: Version, other: Version): number => one[0] - other[0] || one[1] - other[1] || one[2] - other[2]

/** Returns the changelog of the Debian package that a program belongs to; empty if it has no changelog. */
export async function changelogOf(program: string): Promise<string> {
  try {
    const { stdout } = await promisify(execFile)('dpkg-query', ['--search', program])
    const name = stdout.split(':')[0]!
    return gunzipSync(readFileSync(`/usr/share/doc/${name}/changelog.Debian.gz`)).toString('utf8')
  } catch {
    return ''
  }
}
