import type { Completable } from '../../src/cli/completion.ts'

/**
 * Returns the manual page, in the macros of man(7), from what the help of the commands contains.
 * @param commands the program itself first, then its commands.
 */
export function manPage([program, ...commands]: readonly Completable[], version: string, date: string): string {
  const sections = commands.filter(({ path }) => path.split(' ').at(-1) !== 'help')
  return `.TH GLOVEBOX 1 "${date}" "glovebox ${version}" "User Commands"
.SH NAME
glovebox \\- run code for AI agents in isolated sandboxes
.SH SYNOPSIS
.B glovebox
.I COMMAND
.RI [ ARGUMENT ...]
.SH DESCRIPTION
${roff(program!.description)}
.PP
Each command prints its options with
.BR "glovebox help COMMAND" .
.SH COMMANDS
${sections.map(commandText).join('\n')}
.SH FILES
.TP
.I /etc/glovebox/glovebox.yaml
The configuration of the service.
.TP
.I /var/lib/glovebox
The database, the threads and the volumes.
.SH EXIT STATUS
0 for success, 64 for wrong arguments, 69 when no server answers, 70 for an error, 75 when the same command can succeed
later, 77 for a missing permission, 78 when the server cannot start with its configuration or on this machine.
.B glovebox run
exits as the program that it runs.
.SH SEE ALSO
.BR systemctl (1),
.I /usr/share/doc/glovebox/
`
}

function commandText({ path, description, commands, options }: Completable): string {
  const own = options.filter(({ long }) => long !== '--help')
  // The settings of a server have a page of their own, and one flag for each of them.
  const listed = own.length > 40 ? own.filter(({ long }) => ['--config', '--json', '--home'].includes(long)) : own
  const more =
    listed.length < own.length ? [roff('Every setting is an option as well: see "glovebox help serve".')] : []
  return [
    '.TP',
    `.B ${roff(`glovebox ${path}`)}`,
    roff(description),
    ...(commands.length > 0 ? [`Commands: ${roff(commands.map(({ name }) => name).join(', '))}.`] : []),
    ...more,
    ...listed.flatMap(({ short, long, description: meaning, value }) => [
      '.RS',
      '.TP',
      `.B ${roff([...(short === undefined ? [] : [short]), long].join(', '))}${value === undefined ? '' : ` ${value.toUpperCase()}`}`,
      roff(meaning),
      '.RE',
    ]),
  ].join('\n')
}

/** Escapes text: hyphens that can be copied, backslashes, and lines that would begin with a macro. */
const roff = (text: string): string =>
  text
    .replaceAll('\\', '\\e')
    .replaceAll('-', '\\-')
    .replaceAll(/^(?=[.'])/gm, '\\&')
