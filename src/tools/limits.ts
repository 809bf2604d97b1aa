import type { Profile } from '../base/profile.ts'
import type { Limits } from '../base/run.ts'
import type { Resource } from './resource.ts'

const uri = 'glovebox://limits'

/** The languages and limits of the key, for models and programs. */
export const limitsResource: Resource = {
  listing: () => ({
    uri,
    name: 'limits',
    title: 'Limits of this key',
    description: 'Languages, time, memory, output and storage that code run with this key may use.',
    mimeType: 'application/json',
  }),
  read: async ({ profile }) => [
    { uri, mimeType: 'application/json', text: JSON.stringify(limitsOf(profile), null, 2) },
  ],
}

function limitsOf(profile: Profile): object {
  const { limits } = profile
  return {
    profile: profile.name,
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
  }
}

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
