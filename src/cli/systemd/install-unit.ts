/** `glovebox install-service`: makes the server a service of systemd. */
import { existsSync, mkdirSync, readFileSync, realpathSync, writeFileSync } from 'node:fs'
import { dirname, join, resolve } from 'node:path'
import type { Command } from 'commander'
import { StartRefused } from '../../base/errors.ts'
import { type Cli, withExamples } from '../command.ts'
import { printJson, withJson } from '../output.ts'
import { runnerCapabilities } from '../privilege.ts'
import type { ProcessIo } from '../process-io.ts'
import { addSettingOptions, configOf } from '../setting-options.ts'
import { programRoot } from '../unprivileged-command.ts'
import { unitText } from './unit.ts'

const unitName = 'glovebox.service'
export const defaultConfigFile = '/etc/glovebox/glovebox.yaml'

/** The content of a new configuration file: no setting differs from its default. */
export const newConfigText = `# Settings of the Glovebox server. "glovebox config show" prints all of them.
#
# host: 0.0.0.0
# public_url: https://code.example
# trusted_proxies: [127.0.0.1]
# tls_certificate: /etc/glovebox/fullchain.pem
# tls_key: /etc/glovebox/privkey.pem
`

interface Options {
  directory: string
  program?: string
  force?: boolean
  json?: boolean
}

export function register(program: Command, { io }: Cli): void {
  const command = program
    .command('install-service')
    .description('Write a hardened systemd unit that runs the server, and a configuration file if it does not exist.')
    .option('--directory <directory>', 'where to write the unit', '/etc/systemd/system')
    .option('--program <file>', 'the command that the unit starts, instead of this one')
    .option('--force', 'replace a unit with other content')
  withExamples(
    addSettingOptions(withJson(command), []),
    'glovebox install-service',
    'glovebox install-service --config /etc/glovebox/team.yaml',
  ).action((options: Options, used: Command) => installService(options, used, io))
}

/** @throws StartRefused if the unit exists with other content, or the configuration is wrong. */
function installService(options: Options, command: Command, io: ProcessIo): void {
  const file = resolve(command.opts<{ config?: string }>().config ?? io.env.GLOVEBOX_CONFIG ?? defaultConfigFile)
  const isNew = writeConfigFile(file)
  // The unit starts the server with this file, so its settings count here too.
  command.setOptionValue('config', file)
  const config = configOf(command, io)
  const started = options.program ?? realpathSync(join(programRoot, 'bin', 'glovebox'))
  const { home, stateDir, drainMs } = config
  const paths = { program: started, config: file, home, stateDir }
  const text = refusingPaths(() => unitText({ ...paths, drainMs, capabilities: runnerCapabilities }))
  const unit = join(resolve(options.directory), unitName)
  if (existsSync(unit) && readFileSync(unit, 'utf8') !== text && options.force !== true)
    throw new StartRefused(`${unit} exists with other content.`, 'Compare the two, and add --force to replace it.')
  createDirectory(dirname(unit), 0o755)
  for (const directory of [home, stateDir]) createDirectory(directory, 0o711)
  write(unit, text)
  if (options.json === true) printJson({ unit, config: file, config_created: isNew }, io)
  else io.stdout.write(`${report(unit, file, isNew)}`)
}

const report = (unit: string, file: string, isNew: boolean): string => `Wrote ${unit}.
${isNew ? 'Wrote' : 'The server will read'} ${file}.
Start the server, now and after each boot:
  systemctl daemon-reload && systemctl enable --now glovebox
`

/** Returns whether it did not exist. */
function writeConfigFile(path: string): boolean {
  if (existsSync(path)) return false
  createDirectory(dirname(path), 0o755)
  write(path, newConfigText)
  return true
}

function createDirectory(path: string, mode: number): void {
  refusingErrors(path, () => mkdirSync(path, { recursive: true, mode }))
}

function write(path: string, text: string): void {
  refusingErrors(path, () => writeFileSync(path, text, { mode: 0o644 }))
}

function refusingErrors(path: string, act: () => void): void {
  try {
    act()
  } catch (error) {
    throw new StartRefused(`${path} cannot be written: ${(error as Error).message}.`, 'Run this command as root.')
  }
}

function refusingPaths(text: () => string): string {
  try {
    return text()
  } catch (error) {
    throw new StartRefused(`${(error as Error).message}.`, 'Use paths without spaces, quotes and $.')
  }
}
