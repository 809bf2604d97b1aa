/** Images inside the text of a terminal, in the protocol that the terminal understands. */
import type { ProcessIo } from '../process-io.ts'
import { decodePng } from './png.ts'
import { toSixel } from './sixel.ts'

export type ImageProtocol = 'kitty' | 'iterm' | 'sixel'

/**
 * Detects the protocol of a terminal from the environment alone: a terminal that is asked would answer into the standard
 * input. A multiplexer shows no images.
 */
export function protocolOf(env: ProcessIo['env']): ImageProtocol | undefined {
  const { TERM = '', TERM_PROGRAM = '', LC_TERMINAL = '' } = env
  if (env.TMUX || env.STY || /^(?:screen|tmux|dumb)/.test(TERM)) return undefined
  if (env.KITTY_WINDOW_ID || /kitty|ghostty/.test(TERM) || TERM_PROGRAM === 'ghostty') return 'kitty'
  if (['iTerm.app', 'WezTerm'].includes(TERM_PROGRAM) || LC_TERMINAL === 'iTerm2') return 'iterm'
  return /sixel|^foot|^mlterm|^contour|^yaft/.test(TERM) ? 'sixel' : undefined
}

/** @returns the characters that show an image; `undefined` if the protocol cannot show this one. */
export function inlineImage(bytes: Buffer, mediaType: string, protocol: ImageProtocol): string | undefined {
  switch (protocol) {
    case 'kitty':
      return mediaType === 'image/png' ? toKitty(bytes) : undefined
    case 'iterm':
      return `\x1b]1337;File=inline=1;size=${bytes.length}:${bytes.toString('base64')}\x07`
    case 'sixel': {
      const pixels = mediaType === 'image/png' ? decodePng(bytes) : undefined
      return pixels && toSixel(pixels)
    }
  }
}

/** Longest piece of base64 in one escape: https://sw.kovidgoyal.net/kitty/graphics-protocol/#remote-client */
const kittyPieceCharacters = 4096

/** `q=2`: the terminal sends no answer, which would end up in the standard input of the shell. */
function toKitty(bytes: Buffer): string {
  const pieces = bytes.toString('base64').match(new RegExp(`.{1,${kittyPieceCharacters}}`, 'g')) ?? []
  return pieces
    .map((piece, at) => {
      const more = at < pieces.length - 1 ? 1 : 0
      const control = at === 0 ? `a=T,f=100,q=2,m=${more}` : `m=${more}`
      return `\x1b_G${control};${piece}\x1b\\`
    })
    .join('')
}
