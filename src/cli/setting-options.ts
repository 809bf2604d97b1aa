/** Settings on the command line: one flag per setting, and the configuration that they result in. */
import { readFileSync } from 'node:fs'
import { type Command, Option } from 'commander'
import { StartRefused } from '../base/errors.ts'
import { type Config, loadConfig } from '../config.ts'
import { flagOf, type Setting } from '../setting.ts'
import { type SettingName, settingNames, settings } from '../settings.ts'
import { collect, settingsHeading } from './command.ts'
import type { ProcessIo } from './process-io.ts'

/** Adds `--config`, and one flag for each of these settings, under a heading of their own. */
export function addSettingOptions(command: Command, names: readonly SettingName[] = settingNames): Command {
  const add = (option: Option) => command.addOption(option.helpGroup(settingsHeading))
  add(new Option('--config <file>', 'YAML configuration file (GLOVEBOX_CONFIG)'))
  for (const name of names) {
    const setting: Setting = settings[name]
    for (const option of optionsOf(name, setting)) add(option)
    for (const former of setting.formerNames) {
      for (const option of optionsOf(former, setting)) add(option.hideHelp())
    }
  }
  return command
}

function optionsOf(name: string, { schema, meaning }: Setting): Option[] {
  const flag = flagOf(name)
  switch ((schema as { type?: string }).type) {
    case 'boolean':
      return [new Option(flag, meaning), new Option(flag.replace('--', '--no-')).hideHelp()]
    case 'object':
      return [new Option(`${flag} <NAME=value>`, `${meaning} May be repeated.`).argParser(collect)]
    default:
      return [new Option(`${flag} <value>`, meaning)]
  }
}

/**
 * Resolves the configuration of a command that has setting options.
 * @throws StartRefused when the configuration file can't be read or a setting is wrong.
 */
export function configOf(command: Command, { env }: ProcessIo): Config {
  const given = command.opts<Record<string, string | boolean | readonly string[]>>()
  const flags: Record<string, string | boolean | readonly string[]> = {}
  for (const name of settingNames.flatMap((name) => [name, ...(settings[name] as Setting).formerNames])) {
    const option = command.options.find(({ long }) => long === flagOf(name))
    const value = option && given[option.attributeName()]
    if (value !== undefined && option?.helpGroupHeading === settingsHeading) flags[name] = value
  }
  const path = typeof given.config === 'string' ? given.config : env.GLOVEBOX_CONFIG
  return loadConfig({ flags, env, file: path === undefined ? undefined : { path, text: readConfigFile(path) } })
}

function readConfigFile(path: string): string {
  try {
    return readFileSync(path, 'utf8')
  } catch (error) {
    const problem = error instanceof Error ? error.message : String(error)
    throw new StartRefused(`Cannot read the configuration file: ${problem}.`, 'Check --config or GLOVEBOX_CONFIG.')
  }
}
