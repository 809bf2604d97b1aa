/** `glovebox secrets`: secrets of organizations for the network, and the master key. */
import { readFileSync } from 'node:fs'
import { type Command, Option } from 'commander'
import { StartRefused } from '../../base/errors.ts'
import { InstanceLock } from '../../base/instance-lock.ts'
import { type SecretPlace, secretPlaces } from '../../base/network-secrets.ts'
import { masterKeySource, replaceMasterKey } from '../../core/access/master-key.ts'
import { operator } from '../../core/admin/admin.ts'
import { listSecrets, putSecret, removeSecret, type SecretView } from '../../core/admin/secrets.ts'
import { type Cli, withExamples } from '../command.ts'
import { type Columns, printItems, printJson } from '../output.ts'
import { exitCodes } from '../process-io.ts'
import { configOf } from '../setting-options.ts'
import { type AdminSession, adminCommand, everyItem, withAdmin, withOrg, withStore } from './context.ts'

export function register(program: Command, cli: Cli): void {
  const secrets = program
    .command('secrets')
    .description('Manage secrets for the network of runs and sandboxes, and the master key.')
  const add = (usage: string, description: string) => withOrg(adminCommand(secrets, usage, description))
  withExamples(
    add('set <name>', 'Create a secret, or replace it. Programs of profiles that name it see a placeholder.')
      .requiredOption('--host <host...>', 'servers that receive it, such as api.example.com or *.example.com:8443')
      .option('--value-file <file>', 'file with the value, such as /dev/stdin; without it, the stored one is kept')
      .addOption(
        new Option('--in <place...>', 'where in a request its placeholder is replaced')
          .choices(secretPlaces)
          .default(['header']),
      ),
    'glovebox secrets set API_KEY --org acme --host api.example.com --value-file /dev/stdin < key.txt',
  ).action((name: string, options: SetOptions, command: Command) => {
    // Read before the command becomes the user of the API server, which may not be able to read it.
    const value = options.valueFile === undefined ? undefined : readValue(options.valueFile)
    return withAdmin(cli, set)(name, { ...options, value }, command)
  })
  add('list', 'List the secrets of an organization, without their values.').action(withAdmin(cli, list))
  add('delete <name>', 'Delete a secret.').action(withAdmin(cli, remove))
  withExamples(
    adminCommand(
      secrets,
      'rotate',
      'Replace the master key and encrypt all secrets again. The server must be stopped.',
    ),
    'glovebox secrets rotate',
  ).action((_: object, command: Command) => rotate(command, cli))
}

interface SetOptions {
  org: string
  host: string[]
  valueFile?: string
  value?: string | undefined
  in: SecretPlace[]
}

function readValue(file: string): string {
  try {
    return readFileSync(file, 'utf8').replace(/\r?\n$/, '')
  } catch (error) {
    throw new StartRefused(`Cannot read ${file}: ${(error as Error).message}.`, 'Check the path of the file.')
  }
}

async function set(session: AdminSession, name: string, { org, host, value, in: places }: SetOptions) {
  const { id: orgId } = await session.orgNamed(org)
  const settings = { hosts: host, places, ...(value !== undefined && { value }) }
  const secret = await putSecret(session, operator, { orgId, name }, settings)
  session.printResult(secret, secret.placeholder)
  return undefined
}

const columns: Columns<SecretView> = {
  NAME: ({ name }) => name,
  HOSTS: ({ hosts }) => hosts.join(' '),
  IN: ({ places }) => places.join(' '),
  VALUE: ({ hint }) => hint,
  UPDATED: ({ updated_at }) => updated_at,
}

async function list(session: AdminSession, options: { org: string; json?: boolean }) {
  const { id } = await session.orgNamed(options.org)
  const secrets = await everyItem((cursor) => listSecrets(session, operator, id, { cursor }))
  printItems(secrets, columns, options, session.io)
  return undefined
}

async function remove(session: AdminSession, name: string, { org }: { org: string }) {
  await removeSecret(session, operator, (await session.orgNamed(org)).id, name)
  session.printResult({ name, state: 'deleted' }, '')
  return undefined
}

async function rotate(command: Command, { io, exit }: Cli): Promise<void> {
  const config = configOf(command, io)
  const lock = await InstanceLock.acquire(config.home, 'front', true)
  try {
    const code = await withStore(config, io, async (store, instance) => {
      await replaceMasterKey(store, masterKeySource(config, instance.frontHome))
      if (command.opts<{ json?: boolean }>().json) printJson({ rotated: true }, io)
      else io.stdout.write('Encrypted all secrets with a new master key. Back it up separately from the database.\n')
      return exitCodes.ok
    })
    exit(code ?? exitCodes.ok)
  } finally {
    lock.release()
  }
}
