import { execFileSync } from 'node:child_process'
import { createHash } from 'node:crypto'
import { existsSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, renameSync, rmSync } from 'node:fs'
import { join } from 'node:path'

/** `sanitized` has guest-sanitized, guest-fuzz and guest-agent, `static` has guest and python-zygote.so. */
export type GuestBuild = 'static' | 'sanitized'

const root = join(import.meta.dirname, '../..')
const builds = join(root, 'build/test-guests')

/**
 * Builds the guest from its current sources. All test files share one build of the same sources.
 * @returns the directory of the programs, which stays.
 */
export function builtGuest(build: GuestBuild): string {
  const directory = join(builds, `${build}-${hashOfSources()}`)
  if (existsSync(directory)) return directory
  mkdirSync(builds, { recursive: true })
  removeOldBuilds(build)
  const fresh = mkdtempSync(join(builds, 'new-'))
  const mode = build === 'sanitized' ? ['sanitize'] : []
  execFileSync('sh', [join(root, 'guest/build.sh'), join(fresh, 'programs'), ...mode])
  // Two test files may build at the same time: the second directory replaces nothing and is removed.
  if (!existsSync(directory)) renameIfAbsent(join(fresh, 'programs'), directory)
  rmSync(fresh, { recursive: true, force: true })
  return directory
}

function renameIfAbsent(from: string, to: string): void {
  try {
    renameSync(from, to)
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ENOTEMPTY') throw error
  }
}

function removeOldBuilds(build: GuestBuild): void {
  for (const name of readdirSync(builds)) {
    if (name.startsWith(`${build}-`)) rmSync(join(builds, name), { recursive: true, force: true })
  }
}

function hashOfSources(): string {
  const guest = join(root, 'guest')
  const hash = createHash('sha256')
  const names = readdirSync(guest, { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile() && !entry.name.endsWith('.md'))
    .map((entry) => join(entry.parentPath, entry.name))
    .sort()
  for (const name of names) hash.update(`${name}\0`).update(readFileSync(name))
  return hash.digest('hex').slice(0, 16)
}
