/** Sizes of answers over MCP. Counts need no repetition. */
import { table } from './figures.ts'
import type { GloveboxServer } from './glovebox-server.ts'

export interface AnswerFigure {
  answer: string
  /** Bytes of the message at revision 08ce696, which sent each text twice, with all limits, and did not shorten output. */
  beforeBytes: number
  /** Bytes of the message as it is by default. */
  bytes: number
  /** Characters that a client shows to its model. */
  contentCharacters: number | undefined
  /** Bytes of the message with `?structured=true`. */
  structuredBytes: number
}

const calls: readonly [answer: string, beforeBytes: number, method: string, params: object][] = [
  ['tools/list', 9_687, 'tools/list', {}],
  ['print(6*7)', 712, 'tools/call', run('print(6*7)')],
  ['20,000 lines', 1_018_492, 'tools/call', run('for n in range(20000): print("line", n, "of the output")')],
  ['an exception', 889, 'tools/call', run('raise ValueError("no")')],
]

function run(code: string): object {
  return { name: 'sandbox_execute', arguments: { code, language: 'python' } }
}

/** Makes each call once in each form. */
export async function measureAnswers({ url }: GloveboxServer): Promise<AnswerFigure[]> {
  const figures: AnswerFigure[] = []
  for (const [answer, beforeBytes, method, params] of calls) {
    const text = await ask(`${url}/mcp?structured=false`, method, params)
    const { result } = JSON.parse(text) as { result: { content?: { text?: string }[] } }
    const structured = await ask(`${url}/mcp?structured=true`, method, params)
    figures.push({
      ...{ answer, beforeBytes, bytes: Buffer.byteLength(text), structuredBytes: Buffer.byteLength(structured) },
      contentCharacters: result.content?.[0]?.text?.length,
    })
  }
  return figures
}

async function ask(url: string, method: string, params: object): Promise<string> {
  const body = JSON.stringify({ jsonrpc: '2.0', id: 1, method, params })
  const headers = { 'content-type': 'application/json' }
  return (await fetch(url, { method: 'POST', headers, body })).text()
}

export function answersPart(figures: readonly AnswerFigure[]): string {
  const header = [
    'answer over MCP',
    'bytes before',
    'bytes',
    'bytes ÷ before',
    'characters for the model',
    'structured, bytes',
  ]
  const cells = figures.map(({ answer, beforeBytes, bytes, contentCharacters, structuredBytes }) => [
    ...[answer, String(beforeBytes), String(bytes), (bytes / beforeBytes).toFixed(2)],
    ...[String(contentCharacters ?? '–'), String(structuredBytes)],
  ])
  return [
    '## Bytes of an answer',
    '',
    table(header, cells),
    '',
    'Before is revision 08ce696, which sent the text of a result twice, with all limits of the run, and did not shorten output.',
    '"Structured" is the form that clients select with `?structured=true`.',
  ].join('\n')
}
