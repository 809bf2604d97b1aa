import type { Config } from '../config.ts'
import { sizeText } from '../config-sources.ts'
import type { Setting } from '../setting.ts'
import { type SettingName, settingNames, settings } from '../settings.ts'
import { exitCodes, type Io } from './process-io.ts'
import { printTable } from './table.ts'

/** Prints the effective value and the source of every setting, and all profiles. Secret values are not printed. */
export function configShow(config: Config, io: Io): number {
  const rows = settingNames.map((name) => [name, shown(name, config.values[name]), config.sources[name]])
  printTable([['SETTING', 'VALUE', 'SOURCE'], ...rows], io)
  for (const profile of Object.values(config.profiles)) {
    const content = { ...profile, env: Object.keys(profile.env) }
    io.stdout.write(`profile ${profile.name}  ${JSON.stringify(content)}\n`)
  }
  for (const deprecation of config.deprecations) io.stderr.write(`glovebox: ${deprecation}\n`)
  return exitCodes.ok
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
