import type { ProfilePackages } from '../base/packages.ts'
import type { Profile } from '../base/profile.ts'
import type { Limits } from '../base/run.ts'
import type { Software } from '../base/software.ts'
import type { Resource } from './resource.ts'
import { allPackagesCommand } from './software.ts'

const uri = 'glovebox://limits'

/** The languages and limits of the key, for models and programs. */
export const limitsResource: Resource = {
  listing: () => ({
    uri,
    name: 'limits',
    title: 'Limits of this key',
    description: 'Languages, packages, time, memory, output and storage that code run with this key may use.',
    mimeType: 'application/json',
  }),
  read: async ({ profile }, { core }) => [
    {
      uri,
      mimeType: 'application/json',
      text: JSON.stringify(limitsOf(profile, core.softwareOf(profile.image)), null, 2),
    },
  ],
}

function limitsOf(profile: Profile, software: Software): object {
  const { limits } = profile
  return {
    profile: profile.name,
    image: profile.image,
    languages: profile.languages,
    default_language: profile.defaultLanguage,
    timeout_default_ms: Math.min(profile.timeoutDefaultMs, profile.timeoutMaxMs),
    timeout_max_ms: profile.timeoutMaxMs,
    ...limitsOnTheWire(limits),
    thread_bytes: profile.storage.kind === 'threads' ? profile.storage.quota.bytes : null,
    thread_files: profile.storage.kind === 'threads' ? profile.storage.quota.inodes : null,
    detach_after_ms: profile.calls.detachAfterMs,
    toolsets: profile.calls.toolsets,
    network: 'none',
    ...softwareOnTheWire(profile, software),
    ...(profile.packages && { packages: listsOf(profile.packages) }),
  }
}

const listsOf = ({ pip, npm, apt }: ProfilePackages) => ({ pip, npm, apt })

const softwareOnTheWire = ({ languages }: Profile, software: Software) => ({
  interpreters: Object.fromEntries(
    software.interpreters
      .filter(({ language }) => languages.includes(language))
      .map(({ language, version }) => [language, version]),
  ),
  python_packages: Object.fromEntries(software.pythonPackages.map(({ name, version }) => [name, version])),
  python_packages_total: software.pythonPackagesTotal,
  programs: software.programs,
  all_python_packages: allPackagesCommand,
})

/** The limits of every run of a profile, without the timeout, which the caller can choose. */
export const limitsOnTheWire = (limits: Omit<Limits, 'timeoutMs'>) => ({
  memory_bytes: limits.memoryBytes,
  cpus: limits.cpus,
  pids: limits.pids,
  open_files: limits.openFiles,
  file_bytes: limits.fileBytes,
  tmp_bytes: limits.tmpBytes,
  home_bytes: limits.homeBytes,
  output_soft_bytes: limits.outputSoftBytes,
  output_hard_bytes: limits.outputHardBytes,
})
