/** The pages of `docs/` that are printed from tables in the code. Pure: the same code gives the same text. */
import { refusals } from '../src/base/errors.ts'
import { expected, sizeText } from '../src/config-sources.ts'
import { flagOf, type Setting, settingGroups, variableOf } from '../src/settings.ts'

const notice = '<!-- Printed by `npm run docs`; edits here are lost. -->'

/** Text of each generated page, by its path in the repository. */
export const pages = (): Record<string, string> => ({
  'docs/configuration.md': configurationPage(),
  'docs/errors.md': errorsPage(),
})

function configurationPage(): string {
  const sections = Object.entries(settingGroups).map(([title, group]) => {
    const rows = Object.entries(group as Record<string, Setting>).map(([name, setting]) => [
      `\`${name}\``,
      defaultText(setting),
      expected(setting),
      setting.meaning,
    ])
    return `## ${title}\n\n${table(['Setting', 'Default', 'Accepts', 'Meaning'], rows)}`
  })
  return `${notice}

# Configuration

A setting named \`slot_idle_s\` is written in three places; the first that has it wins:

1. as a flag: \`glovebox serve ${flagOf('slot_idle_s')} 120\`
2. as a variable: \`${variableOf('slot_idle_s')}=120\`
3. in a YAML file, named by \`--config FILE\` or \`GLOVEBOX_CONFIG\`: \`slot_idle_s: 120\`

\`glovebox config show\` prints what is in effect and where it came from. A name that is no setting, a value of the wrong
kind, and settings that contradict each other stop the start and are named.

Sizes are written as bytes or with a unit: \`512MiB\`, \`1.5GiB\` (powers of 1024), \`500MB\` (powers of 1000). Times are
plain numbers in the unit that the name ends with (\`_s\`: seconds). Lists are written with commas in flags and
variables, as YAML lists in the file. \`env\` is a map in the file, JSON in the variable, and \`--env NAME=value\`, repeated,
as a flag.

${sections.join('\n\n')}

## Profiles

The settings of the group "Profile" make the profile \`default\`. The file may hold more under \`profiles:\`; each takes
these settings and replaces what it names:

\`\`\`yaml
limit_memory: 512MiB
profiles:
  notebook:
    languages: [python]
    limit_memory: 2GiB
    timeout_max_s: 600
\`\`\`

A changed profile has a new revision; a slot never serves two.
`
}

function defaultText({ default: value, unit }: Setting): string {
  if (unit === 'bytes') return `\`${sizeText(value as number)}\``
  if (Array.isArray(value)) return value.length === 0 ? 'none' : `\`${value.join(', ')}\``
  if (typeof value === 'object') return 'none'
  return `\`${value}\``
}

function errorsPage(): string {
  const rows = Object.entries(refusals).map(([code, row]) => [
    `\`${code}\``,
    String(row.http),
    String(row.rpc),
    `\`${row.error}\``,
    row.retry === 'later' ? 'yes, later' : 'no',
    row.message,
    row.hint,
  ])
  return `${notice}

# Refusals

What a caller is told when a request is refused. How a run ended is no error: it is part of the answer. REST bodies are
\`{"error", "message", "hint"}\`; JSON-RPC errors carry the number and the message. \`{name}\` stands for a detail.

${table(['Code', 'HTTP', 'JSON-RPC', '`error`', 'Retry', 'Message', 'Hint'], rows)}
`
}

function table(head: string[], rows: string[][]): string {
  const line = (cells: string[]) => `| ${cells.map((cell) => cell.replaceAll('|', '\\|')).join(' | ')} |`
  return [line(head), line(head.map(() => '---')), ...rows.map(line)].join('\n')
}
