import type { RunResult } from '../../src/base/run.ts'
import type { KeyRow, OrgRow, ProfileRow, RunRow } from '../../src/store/store.ts'

const createdAt = '2026-01-01T00:00:00.000Z'

export const org: OrgRow = { id: 'org_1', name: 'First', createdAt }

export const plainKey: KeyRow = {
  id: 'key_1',
  orgId: org.id,
  name: 'laptop',
  profile: 'default',
  secretHash: 'a'.repeat(64),
  prefix: 'sk-us-Ab3x',
  createdAt,
  expiresAt: null,
  env: null,
  tools: null,
  upstreamPolicy: null,
  namespaces: null,
  previousHash: null,
  previousUntil: null,
  revokedAt: null,
  retiredAt: null,
}

export const plainProfile: ProfileRow = { name: 'default', revision: 'r1', definition: '{"languages":[]}', createdAt }

export const plainRun = (id: string): Omit<RunRow, 'finishedAt' | 'ending' | 'result'> => ({
  id,
  orgId: org.id,
  keyId: plainKey.id,
  profile: plainProfile.name,
  profileRevision: plainProfile.revision,
  language: 'python',
  codeHash: 'b'.repeat(64),
  codeBytes: 12,
  metadata: '{"note":"Grüße \\u0000"}',
  subject: null,
  envNames: '[]',
  runnerId: 'rnr_1',
  epoch: Date.UTC(2026, 0, 1),
  detached: true,
  kept: false,
  keepsOutput: false,
  threadId: null,
  deliveryMode: 'inline',
  createdAt,
})

export const finishedResult: RunResult = {
  ending: { kind: 'exited', code: 3 },
  durationMs: 1.5,
  cpuTimeMs: 1.25,
  memoryPeakBytes: 8_388_608,
  oomKills: 0,
  outputBytes: { stdout: 2 ** 40, stderr: 0 },
  limits: {
    memoryBytes: 1,
    cpus: 0.5,
    pids: 1,
    openFiles: 1,
    fileBytes: 1,
    tmpBytes: 1,
    homeBytes: 1,
    outputSoftBytes: 1,
    outputHardBytes: 1,
    timeoutMs: 1,
  },
  timings: { queueMs: 0, slotMs: 0.1, jailMs: 1.2, hostMs: 0, runMs: 1.5, drainMs: 0.1 },
}
