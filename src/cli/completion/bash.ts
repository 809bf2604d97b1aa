import type { Completable } from '../completion.ts'

/**
 * A completion script for bash, version 4 or later. Words before the current one select the command; the rest is a
 * choice from its list of words.
 */
export function toBash(commands: readonly Completable[]): string {
  const cases = commands.map((command) => {
    const names = command.commands.map(({ name }) => name).join(' ')
    const options = command.options.flatMap(namesOf).join(' ')
    return `    '${command.path}') commands='${names}' options='${options}' files=${command.takesFiles ? 1 : 0} ;;`
  })
  const values = (kind: 'file' | 'text') => [
    ...new Set(commands.flatMap(({ options }) => options.filter(({ value }) => value === kind).flatMap(namesOf))),
  ]
  return `# Completion of glovebox for bash: source <(glovebox completion bash)
_glovebox() {
  local current=\${COMP_WORDS[COMP_CWORD]} previous=\${COMP_WORDS[COMP_CWORD - 1]} path='' word commands='' options='' files=0
  COMPREPLY=()
  case $previous in
    ${values('file').join('|')}) compopt -o filenames; mapfile -t COMPREPLY < <(compgen -f -- "$current"); return ;;
    ${values('text').join('|')}) return ;;
  esac
  for word in "\${COMP_WORDS[@]:1:COMP_CWORD-1}"; do
    case " ${commands.flatMap(({ path }) => (path === '' ? [] : [path.replaceAll(' ', '/')])).join(' ')} " in
      *" \${path:+$path/}$word "*) path=\${path:+$path/}$word ;;
    esac
  done
  case \${path//\\// } in
${cases.join('\n')}
  esac
  if [[ $current == -* ]]; then
    mapfile -t COMPREPLY < <(compgen -W "$options" -- "$current")
  elif [[ $files == 1 ]]; then
    compopt -o filenames
    mapfile -t COMPREPLY < <(compgen -f -- "$current")
  else
    mapfile -t COMPREPLY < <(compgen -W "$commands" -- "$current")
  fi
}
complete -F _glovebox glovebox
`
}

const namesOf = ({ short, long }: { short: string | undefined; long: string }): string[] =>
  short === undefined ? [long] : [short, long]
