/** What the clients are asked to do, and how the table of docs/clients.md names what their models receive. */
import type { Part, Received, ToolCall } from './scripted-model.ts'

export interface Case {
  /** The heading of its column. */
  title: string
  call: ToolCall
  /** What arrived, by name: every name for which it holds. */
  signs: Readonly<Record<string, (text: string, parts: readonly Part[]) => boolean>>
}

/** The thread that another run holds during a session. */
export const heldThread = 'held'

const execute = (args: Record<string, unknown>): ToolCall => ({ tool: 'sandbox_execute', arguments: args })

/** Shows one small picture, without a library, and runs more code after it. */
const showImage = (after = '') => `
import os, struct, zlib
def chunk(kind, data):
    return struct.pack('>I', len(data)) + kind + data + struct.pack('>I', zlib.crc32(kind + data))
size = struct.pack('>IIBBBBB', 64, 64, 8, 0, 0, 0, 0)
png = b'\\x89PNG\\r\\n\\x1a\\n' + chunk(b'IHDR', size) + chunk(b'IDAT', zlib.compress(bytes(65 * 64))) + chunk(b'IEND', b'')
os.write(int(os.environ['GLOVEBOX_IMAGES']), struct.pack('<IBBH', len(png), 1, 1, 0) + png)
${after}`

const image = (_: string, parts: readonly Part[]) => parts.some(({ type }) => type === 'image')
const includes = (words: string) => (text: string) => text.includes(words)

export const cases: readonly Case[] = [
  { title: 'text', call: execute({ code: 'print(6 * 7)' }), signs: { text: includes('42') } },
  { title: 'an image', call: execute({ code: showImage() }), signs: { image } },
  {
    title: 'an image and an exception',
    call: execute({ code: showImage('1 / 0') }),
    signs: { image, traceback: includes('ZeroDivisionError') },
  },
  {
    title: '20,000 lines',
    call: execute({ code: 'for n in range(20_000): print("line", n)' }),
    // Claude Code and opencode keep long results in a file of their own, which the model can read. Some clients show JSON.
    signs: {
      'first and last lines, or their file': (text) =>
        (/line 0(\n|\\n)/.test(text) && /line 19999(\n|\\n)/.test(text)) || /saved to:? \S+/.test(text),
    },
  },
  {
    title: 'a busy thread',
    call: execute({ code: 'print(1)', thread_id: heldThread }),
    signs: { 'what to do': (text) => /busy/.test(text) && /retry|wait/i.test(text) },
  },
  {
    title: 'a wrong argument',
    call: execute({ code: 'print(1)', language: 'cobol' }),
    signs: { 'what to fix': (text) => /language:? must be/.test(text) },
  },
]

/** Names what the model received, as a cell of the table. An image that arrived as base64 text is named as well. */
export function cellOf({ signs }: Case, { isError, thrown, parts }: Received): string {
  const text = parts.map((part) => (part.type === 'text' ? part.text : '')).join('\n')
  const found = Object.entries(signs)
    .filter(([, holds]) => holds(text, parts))
    .map(([name]) => name)
  if (text.includes('iVBORw0KGgo')) found.push('base64')
  const how = thrown ? ' (exception)' : isError ? ' (error)' : ''
  return `${found.join(', ') || 'nothing'}${how}`
}
