/** `glovebox backup` and `glovebox restore`. */
import type { Command } from 'commander'
import { StartRefused } from '../../base/errors.ts'
import { openInstance } from '../../base/instance.ts'
import { sizeText } from '../../config-sources.ts'
import { masterKeySource } from '../../core/access/master-key.ts'
import { type Cli, withExamples } from '../command.ts'
import { printJson, withJson } from '../output.ts'
import { exitCodes, type ProcessIo } from '../process-io.ts'
import { addSettingOptions, configOf } from '../setting-options.ts'
import { createBackup } from './create.ts'
import type { Manifest } from './manifest.ts'
import { afterRestore, problemsOf, readManifest, restoreBackup, withBackup } from './restore.ts'

export function register(program: Command, cli: Cli): void {
  const backup = program
    .command('backup')
    .argument('<path>', 'a file that ends with .tar, or a directory; neither may exist')
    .option('--with-master-key', 'include the key that encrypts stored secrets')
    .description('Back up the database, the threads and the volumes of a server, which can be running.')
  withExamples(
    addSettingOptions(withJson(backup), ['home', 'state_dir', 'master_key_file', 'master_key']),
    'glovebox backup /backups/glovebox-monday.tar',
    'glovebox backup verify /backups/glovebox-monday.tar',
  ).action((path: string, options: BackupOptions, command: Command) => create(path, options, command, cli))
  withJson(backup.command('verify').argument('<path>', 'a backup'))
    .description('Check that a backup is whole: every file, the database, and each filesystem.')
    // The parent command has the same option, and Commander gives it to the parent.
    .action((path: string, _: object, command: Command) =>
      verify(path, command.optsWithGlobals<BackupOptions>().json ?? false, cli),
    )

  withExamples(
    addSettingOptions(
      withJson(
        program
          .command('restore')
          .argument('<path>', 'a backup')
          .description('Restore a backup to an empty home directory. No server may run on it.'),
      ),
      ['home', 'state_dir', 'front_uid', 'front_gid'],
    ),
    'glovebox restore /backups/glovebox-monday.tar --home /var/lib/glovebox',
  ).action((path: string, { json = false }: { json?: boolean }, command: Command) => restore(path, json, command, cli))
}

interface BackupOptions {
  withMasterKey?: boolean
  json?: boolean
}

async function create(path: string, { withMasterKey, json }: BackupOptions, command: Command, { io }: Cli) {
  const config = configOf(command, io)
  const instance = openInstance(config.home, config.stateDir)
  const { file, value } = masterKeySource(config, instance.frontHome)
  if (withMasterKey && value !== '')
    throw new StartRefused('The master key is not in a file.', 'Leave out --with-master-key and keep the key yourself.')
  const manifest = await createBackup({
    ...{ home: config.home, instance, target: path },
    ...(withMasterKey && { masterKey: file }),
    report: (copied) => !json && io.stderr.write(`copied ${copied}\n`),
  })
  if (json) printJson(manifest, io)
  else io.stdout.write(`Backed up ${summaryOf(manifest)} to ${path}.\n${noteOnKey(manifest)}`)
}

function summaryOf({ files }: Manifest): string {
  const count = (area: string) => files.filter((file) => file.path.startsWith(`storage/${area}/`)).length
  const bytes = files.reduce((sum, { sizeBytes }) => sum + sizeBytes, 0)
  return `the database, ${count('threads')} threads and ${count('volumes')} volumes (${sizeText(bytes)})`
}

const noteOnKey = ({ hasMasterKey }: Manifest): string =>
  hasMasterKey ? '' : 'The master key is not included: keep it separately, or add --with-master-key.\n'

async function verify(path: string, isJson: boolean, { io, exit }: Cli): Promise<void> {
  await withBackup(path, async (directory) => {
    const manifest = await readManifest(directory)
    const problems = await problemsOf(directory, manifest)
    if (isJson) printJson({ holds: problems.length === 0, problems, created_at: manifest.createdAt }, io)
    else report(path, manifest, problems, io)
    if (problems.length > 0) exit(exitCodes.ioError)
  })
}

function report(path: string, manifest: Manifest, problems: readonly string[], io: ProcessIo): void {
  if (problems.length === 0) io.stdout.write(`${path} is whole: ${summaryOf(manifest)}, ${manifest.createdAt}.\n`)
  for (const problem of problems) io.stderr.write(`glovebox: ${problem}\n`)
}

async function restore(path: string, isJson: boolean, command: Command, { io }: Cli): Promise<void> {
  const config = configOf(command, io)
  await withBackup(path, async (directory) => {
    const manifest = await readManifest(directory)
    const { home, frontUid, frontGid } = config
    await restoreBackup({ directory, manifest, home, frontUid, frontGid })
    if (isJson) printJson(manifest, io)
    else io.stdout.write(`Restored ${summaryOf(manifest)} to ${config.home}.\n${afterRestore(manifest)}\n`)
  })
}
