import { totalsOf } from '../base/network-uses.ts'
import type { ChangedFile } from '../base/run.ts'
import type { AuditEntry } from './audit-rows.ts'
import type { RunRow } from './store.ts'

/** Maximum number of files in a line. The line also contains the total number. */
const filesMax = 100

const filesOf = (changed: readonly ChangedFile[]) =>
  changed.slice(0, filesMax).map(({ path, sizeBytes, sha256 }) => ({ path, size: sizeBytes, sha256 }))

/** Returns the audit line of a run that has ended, with a hash of its code and the names of its variables. */
export function auditOfRun(run: RunRow, at: string): AuditEntry {
  const { profile, profileRevision, language, codeBytes, codeHash, ending, result } = run
  return {
    at,
    orgId: run.orgId,
    actor: run.keyId,
    action: 'run',
    target: run.id,
    details: {
      profile,
      profile_revision: profileRevision,
      language,
      code_bytes: codeBytes,
      ending,
      ...(result?.files && { files_changed: result.files.changed.length }),
      ...(result?.network && { network: totalsOf(result.network) }),
      ...(result && { duration_ms: Math.round(result.durationMs), cpu_ms: Math.round(result.cpuTimeMs) }),
    },
    personal: {
      code_hash: codeHash,
      env_names: JSON.parse(run.envNames) as unknown,
      ...(result?.files && { files: filesOf(result.files.changed) }),
      ...(result?.network && { network: result.network }),
      metadata: run.metadata === null ? null : (JSON.parse(run.metadata) as unknown),
      subject: run.subject,
    },
    subject: run.subject,
  }
}
