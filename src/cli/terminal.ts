/** What a terminal is sent: colors if it wants them, and no control characters that come from a sandbox or a server. */
import { styleText } from 'node:util'
import type { OutputStream, ProcessIo } from './process-io.ts'

export type Style = Parameters<typeof styleText>[0]

/**
 * Whether an output gets colors: FORCE_COLOR decides, then NO_COLOR, then whether it is a terminal that knows them.
 * https://no-color.org and https://nodejs.org/api/cli.html#force_color1-2-3
 */
export function hasColors({ isTTY }: OutputStream, env: ProcessIo['env']): boolean {
  const forced = env.FORCE_COLOR
  if (forced !== undefined) return !['0', 'false'].includes(forced.toLowerCase())
  return isTTY === true && !env.NO_COLOR && env.TERM !== 'dumb'
}

/** Styles text that is written to an output of this process, if that output gets colors. */
export function styled(text: string, style: Style, output: OutputStream, env: ProcessIo['env']): string {
  return hasColors(output, env) ? styleText(style, text, { validateStream: false }) : text
}

const escaped = (character: string): string => {
  const code = character.charCodeAt(0)
  return code < 0x100 ? `\\x${code.toString(16).padStart(2, '0')}` : `\\u${code.toString(16)}`
}

/** Characters that move the cursor, start a command of a terminal, end a line or change the direction of text. */
// biome-ignore lint/suspicious/noControlCharactersInRegex: these are the characters to find
const unprintable = /[\x00-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069]/g

/**
 * Escapes what a name or message from elsewhere must not send to a terminal. Everything else, such as a pipe, gets it
 * unchanged, so that scripts work with the exact names.
 */
export const printable = (text: string, { isTTY }: OutputStream): string =>
  isTTY === true ? text.replaceAll(unprintable, escaped) : text

/**
 * Makes the output of a program safe to show on a terminal. Line breaks, tabs, carriage returns, colors and erasing a
 * line stay; any other control character is shown as an escape, and a byte that is not UTF-8 as U+FFFD.
 */
export class TerminalText {
  readonly #decoder = new TextDecoder('utf-8', { ignoreBOM: true })
  #held = ''

  /** @returns what can be shown of it; an incomplete character or sequence waits for its rest. */
  add(bytes: Uint8Array): string {
    const text = this.#held + this.#decoder.decode(bytes, { stream: true })
    const end = unfinished.exec(text)?.index ?? text.length
    this.#held = text.slice(end)
    return withoutControls(text.slice(0, end))
  }

  /** @returns what was waiting. */
  end(): string {
    const rest = this.#held + this.#decoder.decode()
    this.#held = ''
    return withoutControls(rest)
  }
}

/** The start of a sequence that is let through: colors (SGR) and erasing a line (EL). */
// biome-ignore lint/suspicious/noControlCharactersInRegex: these are the characters to find
const unfinished = /\x1b(?:\[[0-9;:]{0,32})?$/
// biome-ignore lint/suspicious/noControlCharactersInRegex: these are the characters to find
const controls = /\x1b\[[0-9;:]{0,32}[mK]|[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]/g

const withoutControls = (text: string): string =>
  text.replaceAll(controls, (found) => (found.length > 1 ? found : escaped(found)))
