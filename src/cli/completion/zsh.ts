import type { Completable, CompletableOption } from '../completion.ts'

/** A completion function for zsh, for a file `_glovebox` in its `fpath`; it can also be sourced. */
export function toZsh(commands: readonly Completable[]): string {
  return `#compdef glovebox
# Completion of glovebox for zsh: glovebox completion zsh >"$fpath[1]/_glovebox"
${commands.map(toFunction).join('\n')}
if [[ $zsh_eval_context[-1] == loadautofunc ]]; then
  _glovebox "$@"
else
  compdef _glovebox glovebox
fi
`
}

const nameOf = (path: string): string => `_glovebox${path === '' ? '' : `_${path.replaceAll(/[ -]/g, '_')}`}`

function toFunction({ path, commands, options, takesFiles }: Completable): string {
  const specs = options.flatMap(toSpecs)
  if (commands.length === 0) {
    return `${nameOf(path)}() {\n  _arguments -s \\\n${lines([...specs, takesFiles ? "'*:file:_files'" : "'*: :'"])}\n}`
  }
  const described = commands.map(
    ({ name, description }) => `      ${quoted(`${name}:${description.replaceAll(':', '\\:')}`)}`,
  )
  const cases = commands.map(({ name }) => `        ${name}) ${nameOf(`${path} ${name}`.trim())} ;;`)
  return `${nameOf(path)}() {
  local context state state_descr line
  typeset -A opt_args
  _arguments -C \\
${lines([...specs, "'1: :->command'", "'*:: :->rest'"])}
  case $state in
    command)
      local -a commands=(
${described.join('\n')}
      )
      _describe command commands
      ;;
    rest)
      case $line[1] in
${cases.join('\n')}
      esac
      ;;
  esac
}`
}

const lines = (specs: readonly string[]): string => specs.map((spec) => `    ${spec}`).join(' \\\n')

function toSpecs({ short, long, description, value }: CompletableOption): string[] {
  const action = value === undefined ? '' : value === 'file' ? ':file:_files' : ':value: '
  const text = `[${description.replaceAll(/[[\]:\\]/g, '\\$&')}]${action}`
  return [short, long].flatMap((name) => (name === undefined ? [] : [quoted(`*${name}${text}`)]))
}

const quoted = (text: string): string => `'${text.replaceAll("'", "'\\''")}'`
