import type { RunEvent } from '../../base/run.ts'
import type { FromRunner } from '../protocol/messages.ts'

const nothing = new Uint8Array()

/** Returns an event of a run as a message of the attachment with a number, and its payload. */
export function messageOf(request: number, event: RunEvent): [header: FromRunner, payload: Uint8Array] {
  const { seq } = event
  switch (event.kind) {
    case 'running':
      return [{ type: 'running', request, seq }, nothing]
    case 'output':
      return [{ type: 'output', request, seq, stream: event.stream }, event.bytes]
    case 'gap':
      return [{ type: 'gap', request, seq, stream: event.stream, bytes: event.bytes }, nothing]
    case 'image':
      return [{ type: 'image', request, seq, mimeType: event.mimeType }, event.bytes]
    case 'ended':
      return [{ type: 'ended', request, seq, result: event.result }, nothing]
  }
}
