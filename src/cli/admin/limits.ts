/** `glovebox limits` and `glovebox usage`: what organizations and keys may use, and what they used. */
import type { Command } from 'commander'
import type { UsageLimits } from '../../core/access/usage-limiter.ts'
import { operator } from '../../core/admin/admin.ts'
import { limitsOf, setLimits, usageOf } from '../../core/admin/limits.ts'
import { type Cli, withExamples } from '../command.ts'
import { type Columns, printItems, printJson } from '../output.ts'
import { type AdminSession, adminCommand, withAdmin, withOrg } from './context.ts'

interface LimitOptions {
  org: string
  key?: string
  runsPerMinute?: string
  concurrentRuns?: string
  runSecondsPerDay?: string
  storageBytes?: string
  sandboxes?: string
  sandboxMemoryBytes?: string
  sandboxDiskBytes?: string
}

const optionOf = {
  runs_per_minute: 'runsPerMinute',
  concurrent_runs: 'concurrentRuns',
  run_seconds_per_day: 'runSecondsPerDay',
  storage_bytes: 'storageBytes',
  sandboxes: 'sandboxes',
  sandbox_memory_bytes: 'sandboxMemoryBytes',
  sandbox_disk_bytes: 'sandboxDiskBytes',
} as const satisfies Record<keyof UsageLimits, keyof LimitOptions>

export function register(program: Command, cli: Cli): void {
  withExamples(
    withOrg(adminCommand(program, 'limits', 'Print the limits of an organization or key, after changing those given.'))
      .option('--key <id>', 'a key of the organization instead of the organization itself')
      .option('--runs-per-minute <n>', 'runs started within any 60 seconds; "none" removes a limit')
      .option('--concurrent-runs <n>', 'concurrent runs, including queued ones')
      .option('--run-seconds-per-day <n>', 'total duration of the runs of a day (UTC)')
      .option('--storage-bytes <n>', 'total size of threads, volumes and sandboxes; for organizations only')
      .option('--sandboxes <n>', 'named sandboxes that run or are paused at the same time')
      .option('--sandbox-memory-bytes <n>', 'total memory of these sandboxes')
      .option('--sandbox-disk-bytes <n>', 'total disk of all named sandboxes'),
    'glovebox limits --org acme --concurrent-runs 8',
    'glovebox limits --org acme --key key_… --runs-per-minute none',
  ).action(withAdmin(cli, limits))
  withExamples(
    withOrg(adminCommand(program, 'usage', 'Print the usage of an organization by day and key.'))
      .option('--from <day>', 'first day, such as 2027-01-31 (default: thirty days ago)')
      .option('--until <day>', 'day after the last one'),
    'glovebox usage --org acme --from 2027-01-01 --until 2027-02-01',
  ).action(withAdmin(cli, usage))
}

async function limits(session: AdminSession, options: LimitOptions) {
  const { id: orgId } = await session.orgNamed(options.org)
  const owner = { orgId, ...(options.key !== undefined && { keyId: options.key }) }
  const amounts = await limitsOf(session, operator, owner)
  const given = (Object.keys(optionOf) as (keyof UsageLimits)[]).filter((name) => options[optionOf[name]] !== undefined)
  for (const name of given) {
    if (options[optionOf[name]] === 'none') delete amounts[name]
    else amounts[name] = Number(options[optionOf[name]])
  }
  if (given.length > 0) await setLimits(session, operator, owner, amounts)
  printJson(amounts, session.io)
  return undefined
}

type Used = Awaited<ReturnType<typeof usageOf>>[number]

const columns: Columns<Used> = {
  DAY: ({ day }) => day,
  KEY: ({ keyId }) => keyId,
  RUNS: ({ runs }) => `${runs}`,
  'RUN SECONDS': ({ runMs }) => `${runMs / 1_000}`,
  'CPU SECONDS': ({ cpuMs }) => `${cpuMs / 1_000}`,
  'SANDBOX SECONDS': ({ sandboxMs }) => `${sandboxMs / 1_000}`,
}

async function usage(session: AdminSession, options: { org: string; from?: string; until?: string; json?: boolean }) {
  const { id } = await session.orgNamed(options.org)
  printItems(await usageOf(session, operator, id, options), columns, options, session.io)
  return undefined
}
