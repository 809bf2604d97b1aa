import type { Completable, CompletableOption } from '../completion.ts'

/** A completion script for fish. */
export function toFish(commands: readonly Completable[]): string {
  return `# Completion of glovebox for fish: glovebox completion fish >~/.config/fish/completions/glovebox.fish
function __glovebox_at
    # The words of the command line that are no options, without the one that is being written.
    set -l words (string match --invert -- '-*' (commandline --tokenize --cut-at-cursor --current-process)[2..])
    set -l wanted (string split --no-empty ' ' -- $argv[1])
    set -l count (count $wanted)
    test $count -eq 0; and begin; test (count $words) -eq 0; return; end
    test "$words[1..$count]" = "$argv[1]"; or return 1
    set -l following $words[(math $count + 1)]
    test -z "$following"; or not contains -- "$following" $argv[2..]
end
complete -c glovebox -f
${commands.flatMap(toLines).join('\n')}
`
}

function toLines({ path, commands, options, takesFiles }: Completable): string[] {
  const condition = `-n ${quoted(`__glovebox_at ${[path, ...commands.map(({ name }) => name)].map(quoted).join(' ')}`)}`
  return [
    ...commands.map(
      ({ name, description }) => `complete -c glovebox ${condition} -a ${name} -d ${quoted(description)}`,
    ),
    ...options.map((option) => `complete -c glovebox ${condition} ${toFlags(option)} -d ${quoted(option.description)}`),
    ...(takesFiles ? [`complete -c glovebox ${condition} -F`] : []),
  ]
}

function toFlags({ short, long, value }: CompletableOption): string {
  const names = [...(short === undefined ? [] : [`-s ${short.slice(1)}`]), `-l ${long.slice(2)}`]
  const action = value === undefined ? [] : value === 'file' ? ['-r', '-F'] : ['-x']
  return [...names, ...action].join(' ')
}

const quoted = (text: string): string => `'${text.replaceAll('\\', '\\\\').replaceAll("'", "\\'")}'`
