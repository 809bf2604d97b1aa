import type { Config } from '../config.ts'
import { sizeText } from '../config-sources.ts'
import { type SettingName, settings } from '../settings.ts'
import type { Io } from './process-io.ts'

/** Prints every setting as it is in effect and where it came from; of secrets only the names. */
export function configShow(config: Config, io: Io): number {
  const rows = (Object.keys(settings) as SettingName[]).map((name) => [
    name,
    shown(name, config.values[name]),
    config.sources[name],
  ])
  const widths = [0, 1].map((column) => Math.max(...rows.map((row) => row[column]?.length ?? 0)))
  for (const row of rows) {
    const line = row.map((cell, column) => cell.padEnd(widths[column] ?? 0)).join('  ')
    io.stdout.write(`${line.trimEnd()}\n`)
  }
  for (const profile of Object.values(config.profiles)) {
    const content = { ...profile, env: Object.keys(profile.env) }
    io.stdout.write(`profile ${profile.name}  ${JSON.stringify(content)}\n`)
  }
  return 0
}

function shown(name: SettingName, value: unknown): string {
  const setting = settings[name]
  if (setting.secret) return `${Object.keys(value as object).join(', ') || '(none)'} (values hidden)`
  if (setting.unit === 'bytes') return sizeText(value as number)
  if (Array.isArray(value)) return value.join(', ') || '(none)'
  return String(value)
}
