/** The commands that manage orgs, keys, profiles, limits, tools and tokens, as the command line names them. */
import type { Command } from 'commander'
import type { Config } from '../config.ts'
import type { SettingName } from '../settings.ts'
import type { AuditFlags } from './audit.ts'
import type { KeyFlags } from './keys.ts'
import type { LimitFlags } from './orgs.ts'
import type { Io } from './process-io.ts'
import { addSettingOptions, collect, configOf } from './setting-options.ts'
import type { VolumeFlags } from './volumes.ts'

/** What these commands need to know: where the database is, whose it is, how a key begins, what is sealed with what. */
const names: readonly SettingName[] = [
  'home',
  'state_dir',
  'front_uid',
  'front_gid',
  'region',
  'master_key_file',
  'master_key',
]

interface Means {
  io: Io
  exit(code: number): void
}

export function addAdministration(program: Command, means: Means): void {
  const { io, exit } = means
  const add = (group: Command, words: string, description: string) =>
    addSettingOptions(group.command(words).description(description), names)
  const run =
    (work: (config: Config, ...given: never[]) => Promise<number>) =>
    async (...given: unknown[]): Promise<void> => {
      const command = given.at(-1) as Command
      exit(await work(configOf(command, io), ...(given.slice(0, -1) as never[])))
    }

  addKeys(program.command('keys').description('Manage the keys of callers; a server may be running or not.'))
  addOrgs(program.command('orgs').description('Manage organisations.'))
  addProfiles(program.command('profiles').description('Manage the profiles that an org has besides the configuration.'))
  addVolumes(program.command('volumes').description('Manage the volumes of an org, which profiles mount.'))
  addTools(program.command('tools').description('Switch tools off and on, for all keys of an org.'))
  addTokens(program.command('tokens').description('Manage the tokens of /admin/v1.'))
  addAudit(program.command('audit').description('Prove and read what was done.'))
  addSubjects(program.command('subjects').description('Export or erase what is kept of a person or case.'))
  add(program, 'limits', 'Print the limits of an org or key; set those that are named, "none" takes one away.')
    .option('--org <name>', 'whose', 'default')
    .option('--key <id>', 'of this key of the org')
    .option('--runs-per-minute <n>', 'runs that begin within any 60 seconds')
    .option('--concurrent-runs <n>', 'runs at once')
    .option('--run-seconds-per-day <n>', 'duration of all runs of a day (UTC) together')
    .option('--storage-bytes <n>', 'sum of the quotas of threads and volumes; of an org alone')
    .action(
      run(async (config, options: Record<string, string>) => {
        const { limits } = await import('./orgs.ts')
        const flags: LimitFlags = {
          ...(options.runsPerMinute && { runs_per_minute: options.runsPerMinute }),
          ...(options.concurrentRuns && { concurrent_runs: options.concurrentRuns }),
          ...(options.runSecondsPerDay && { run_seconds_per_day: options.runSecondsPerDay }),
          ...(options.storageBytes && { storage_bytes: options.storageBytes }),
        }
        return limits(config, { org: options.org!, ...(options.key && { key: options.key }), ...flags }, io)
      }),
    )
  add(program, 'history', 'Print what is kept of the runs of an org; change what is named first.')
    .option('--org <name>', 'whose', 'default')
    .option('--keep-code <yes|no>', 'whether code is kept with the run')
    .option('--keep-output <yes|no>', 'whether what it printed is kept with the run')
    .action(
      run(async (config, options: { org: string; keepCode?: string; keepOutput?: string }) =>
        (await import('./orgs.ts')).history(config, options, io),
      ),
    )
  add(program, 'webhook-secret', 'Print what the webhooks of an org are signed with.')
    .option('--org <name>', 'whose', 'default')
    .option('--rotate', 'make another first; every try from now on is signed with it')
    .action(
      run(async (config, options: { org: string; rotate?: boolean }) =>
        (await import('./orgs.ts')).webhookSecret(config, options, io),
      ),
    )
  add(program, 'usage', 'Print what the runs of an org used, by day and key.')
    .option('--org <name>', 'whose', 'default')
    .option('--from <day>', 'as 2027-01-31; by default thirty days ago')
    .option('--until <day>', 'the first day that does not count')
    .action(
      run(async (config, options: { org: string; from?: string; until?: string }) =>
        (await import('./orgs.ts')).usage(config, options, io),
      ),
    )
  add(
    program.command('secrets').description('Manage the master key.'),
    'rotate',
    'Seal everything anew; no server may run.',
  ).action(run(async (config) => (await import('./tokens.ts')).secretsRotate(config, io)))

  function addKeys(keys: Command): void {
    const settings = (command: Command) =>
      command
        .option('--profile <name>', 'the profile it is bound to')
        .option('--name <text>', 'by which you know it')
        .option('--expires <time>', 'as 2027-01-31T12:00:00Z, or "never"')
        .option('--env <NAME=value>', 'a variable of its runs; may be repeated', collect)
        .option('--tools <names>', 'the tools that it may use, with commas, or "all"')
    settings(add(keys, 'create', 'Make a key and print it, this once.'))
      .option('--org <name>', 'whom it belongs to; made when new', 'default')
      .action(
        run(async (config, options: KeyFlags & { org: string }) =>
          (await import('./keys.ts')).keysCreate(config, options, io),
        ),
      )
    add(keys, 'list', 'Print all keys, by how they begin.')
      .option('--org <name>', 'of this one alone')
      .action(
        run(async (config, options: { org?: string }) => (await import('./keys.ts')).keysList(config, options.org, io)),
      )
    settings(add(keys, 'update <id>', 'Change what is named of a key.')).action(
      run(async (config, id: string, options: KeyFlags) =>
        (await import('./keys.ts')).keysUpdate(config, id, options, io),
      ),
    )
    add(keys, 'rotate <id>', 'Give a key another secret and print it, this once.')
      .option('--overlap <seconds>', 'how long the one before is still good', '0')
      .action(
        run(async (config, id: string, { overlap }: { overlap: string }) =>
          (await import('./keys.ts')).keysRotate(config, id, Number(overlap), io),
        ),
      )
    add(keys, 'revoke <id>', 'Revoke a key for good, and end what it has going.').action(
      run(async (config, id: string) => (await import('./keys.ts')).keysRevoke(config, id, io)),
    )
  }

  function addOrgs(orgs: Command): void {
    add(orgs, 'list', 'Print every org.').action(
      run(async (config) => (await import('./orgs.ts')).orgsList(config, io)),
    )
    add(orgs, 'create <name>', 'Make an org and print its id.').action(
      run(async (config, name: string) => (await import('./orgs.ts')).orgsCreate(config, name, io)),
    )
    add(orgs, 'rename <name> <to>', 'Give an org another name.').action(
      run(async (config, name: string, to: string) => (await import('./orgs.ts')).orgsRename(config, name, to, io)),
    )
  }

  function addProfiles(profiles: Command): void {
    const ofOrg = (command: Command) => command.option('--org <name>', 'whose', 'default')
    ofOrg(add(profiles, 'list', 'Print every profile that keys of an org can have.')).action(
      run(async (config, { org }: { org: string }) => (await import('./orgs.ts')).profilesList(config, org, io)),
    )
    ofOrg(add(profiles, 'show <name>', 'Print one as it was written.')).action(
      run(async (config, name: string, { org }: { org: string }) =>
        (await import('./orgs.ts')).profilesShow(config, name, org, io),
      ),
    )
    ofOrg(add(profiles, 'set <name> <file>', 'Make one, or write it anew, from a YAML file of settings.')).action(
      run(async (config, name: string, file: string, { org }: { org: string }) =>
        (await import('./orgs.ts')).profilesSet(config, name, file, org, io),
      ),
    )
    ofOrg(add(profiles, 'remove <name>', 'Remove one that no key is bound to.')).action(
      run(async (config, name: string, { org }: { org: string }) =>
        (await import('./orgs.ts')).profilesRemove(config, name, org, io),
      ),
    )
  }

  function addVolumes(volumes: Command): void {
    const ofOrg = (command: Command) => command.option('--org <name>', 'whose', 'default')
    ofOrg(add(volumes, 'create <slug>', 'Make one, which profiles mount as <slug>:ro or <slug>:rw.'))
      .option('--name <text>', 'by which you know it')
      .option('--quota <size>', 'what it may hold, as 10GiB')
      .option('--files <n>', 'files, directories and links that it may hold')
      .action(
        run(async (config, slug: string, flags: VolumeFlags) =>
          (await import('./volumes.ts')).volumesCreate(config, slug, flags, io),
        ),
      )
    ofOrg(add(volumes, 'list', 'Print every volume of an org.')).action(
      run(async (config, { org }: VolumeFlags) => (await import('./volumes.ts')).volumesList(config, org, io)),
    )
    ofOrg(add(volumes, 'rename <slug> <to>', 'Give one that no profile mounts another slug.')).action(
      run(async (config, slug: string, to: string, { org }: VolumeFlags) =>
        (await import('./volumes.ts')).volumesRename(config, slug, to, org, io),
      ),
    )
    ofOrg(add(volumes, 'grow <slug> <size>', 'Let one hold more; none shrinks.')).action(
      run(async (config, slug: string, size: string, { org }: VolumeFlags) =>
        (await import('./volumes.ts')).volumesGrow(config, slug, size, org, io),
      ),
    )
    ofOrg(add(volumes, 'delete <slug>', 'Delete one that no profile mounts, with all that it holds.')).action(
      run(async (config, slug: string, { org }: VolumeFlags) =>
        (await import('./volumes.ts')).volumesDelete(config, slug, org, io),
      ),
    )
  }

  function addTools(tools: Command): void {
    add(tools, 'list', 'Print every tool and whether it is shown.')
      .option('--org <name>', 'whose keys', 'default')
      .action(run(async (config, { org }: { org: string }) => (await import('./tools.ts')).toolsList(config, org, io)))
    for (const what of ['hide', 'show'] as const) {
      add(tools, `${what} <tool>`, what === 'hide' ? 'Let nobody of an org see or call a tool.' : 'Undo it.')
        .option('--org <name>', 'whose keys', 'default')
        .action(
          run(async (config, tool: string, { org }: { org: string }) =>
            (await import('./tools.ts')).toolsSwitch(config, what, tool, org, io),
          ),
        )
    }
  }

  function addAudit(audit: Command): void {
    const filtered = (command: Command) =>
      command
        .option('--org <name>', 'of this one alone')
        .option('--action <action>', 'such as run or key.create')
        .option('--actor <id>', 'of a key or token')
        .option('--subject <name>', 'of this person or case')
        .option('--from <time>', 'as 2027-01-31, or with a time of day')
        .option('--until <time>', 'the first moment that does not count')
    add(audit, 'verify', 'Prove that no line was changed, added or taken away.')
      .option('--anchor <seq:hash>', 'what an earlier proof printed')
      .action(
        run(async (config, { anchor }: { anchor?: string }) =>
          (await import('./audit.ts')).auditVerify(config, anchor, io),
        ),
      )
    filtered(add(audit, 'list', 'Print the newest lines.')).action(
      run(async (config, flags: AuditFlags) => (await import('./audit.ts')).auditList(config, flags, io)),
    )
    filtered(add(audit, 'export', 'Print every line as JSON, oldest first.')).action(
      run(async (config, flags: AuditFlags) => (await import('./audit.ts')).auditExport(config, flags, io)),
    )
  }

  function addSubjects(subjects: Command): void {
    add(subjects, 'export <subject>', 'Print all that is kept of one, as lines of JSON.')
      .option('--org <name>', 'whose', 'default')
      .action(
        run(async (config, subject: string, { org }: { org: string }) =>
          (await import('./audit.ts')).subjectsExport(config, subject, org, io),
        ),
      )
    add(subjects, 'erase <subject>', 'Erase all that is kept of one, for good; a server has to run.')
      .option('--org <name>', 'whose', 'default')
      .action(
        run(async (config, subject: string, { org }: { org: string }) =>
          (await import('./audit.ts')).subjectsErase(config, subject, org, io),
        ),
      )
  }

  function addTokens(tokens: Command): void {
    add(tokens, 'create', 'Make a token and print it, this once.')
      .requiredOption('--role <role>', 'owner (everything), admin (all but tokens) or member (looks only)')
      .option('--name <text>', 'by which you know it', 'unnamed')
      .option('--org <name>', 'for this org alone; otherwise for all')
      .option('--expires <time>', 'as 2027-01-31T12:00:00Z')
      .action(
        run(async (config, options: { name: string; role: string; org?: string; expires?: string }) =>
          (await import('./tokens.ts')).tokensCreate(config, options, io),
        ),
      )
    add(tokens, 'list', 'Print all tokens, by how they begin.').action(
      run(async (config) => (await import('./tokens.ts')).tokensList(config, io)),
    )
    add(tokens, 'revoke <id>', 'Refuse a token from now on.').action(
      run(async (config, id: string) => (await import('./tokens.ts')).tokensRevoke(config, id, io)),
    )
  }
}
