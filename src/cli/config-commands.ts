/** `glovebox config`: the effective configuration, and that of MCP clients. */
import type { Command } from 'commander'
import type { Config } from '../config.ts'
import { sizeText } from '../config-sources.ts'
import { mcpClientNames } from '../gateway/client-config.ts'
import type { Setting } from '../setting.ts'
import { type SettingName, settingNames, settings } from '../settings.ts'
import { reporting, withServer } from './api-client.ts'
import { type ClientConfigOptions, clientConfigCommand } from './client-config-command.ts'
import { type Cli, withExamples } from './command.ts'
import { printJson, printTable, withJson } from './output.ts'
import type { ProcessIo } from './process-io.ts'
import { addSettingOptions, configOf } from './setting-options.ts'

export function register(program: Command, { io, exit }: Cli): void {
  const config = withServer(
    program
      .command('config')
      .description('Inspect the configuration, or connect an MCP client.')
      .argument('[client]', `MCP client whose configuration is printed: ${mcpClientNames.join(', ')}`),
  )
    .option('--upstream <name>', 'connect it to an upstream instead of this server')
    .option('--all', 'connect it to /v1/mcp, which has the tools of all upstreams')
    .option('--write', 'merge the entry into the file of the client, after showing the change')
    .option('--file <path>', 'file of the client')
    .action(async (client: string | undefined, options: ClientConfigOptions, command: Command) => {
      if (client === undefined) command.help({ error: true })
      exit(await reporting('config', io, () => clientConfigCommand(client, options, io)))
    })
  withExamples(config, 'glovebox config cursor --url https://glovebox.example.com --key-file key --write')
  withExamples(
    addSettingOptions(
      withJson(config.command('show').description('Print every setting, its value and where it was set.')),
    ),
    'glovebox config show --config /etc/glovebox.yaml',
  ).action((_: object, command: Command) => configShow(configOf(command, io), command.opts(), io))
}

/** Prints the effective value and the source of every setting, and all profiles. Secret values are not printed. */
function configShow(config: Config, { json = false }: { json?: boolean }, io: ProcessIo): void {
  for (const deprecation of config.deprecations) io.stderr.write(`glovebox: ${deprecation}\n`)
  const profiles = Object.values(config.profiles).map((profile) => ({ ...profile, env: Object.keys(profile.env) }))
  if (json) {
    const shownSettings = settingNames.map((name) => {
      const value = (settings[name] as Setting).secret ? hidden(config.values[name]) : config.values[name]
      return [name, { value, source: config.sources[name] }] as const
    })
    printJson({ settings: Object.fromEntries(shownSettings), profiles }, io)
    return
  }
  const rows = settingNames.map((name) => [name, shown(name, config.values[name]), config.sources[name]])
  printTable([['SETTING', 'VALUE', 'SOURCE'], ...rows], io)
  for (const profile of profiles) io.stdout.write(`profile ${profile.name}  ${JSON.stringify(profile)}\n`)
}

function shown(name: SettingName, value: unknown): string {
  const { secret, unit }: Setting = settings[name]
  if (secret) return hidden(value)
  if (unit === 'bytes') return sizeText(value as number)
  if (Array.isArray(value)) return value.join(', ') || '(none)'
  return String(value) || '(empty)'
}

/** A map of variables shows their names; a secret text shows only whether it is set. */
function hidden(value: unknown): string {
  if (typeof value !== 'object' || value === null) return value === '' ? '(not set)' : '(set, hidden)'
  const names = Object.keys(value)
  return names.length === 0 ? '(none)' : `${names.join(', ')} (values hidden)`
}
