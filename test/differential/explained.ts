import type { Outcome, Sent } from './servers.ts'

interface Difference {
  /** The mistake in the request, or `nothing`. */
  wrong: string
  sent: Sent
  mine: Outcome
  theirs: Outcome
  judge: string
}

const message = ({ sent }: Difference): Record<string, unknown> => {
  const body = JSON.parse(sent.body)
  return typeof body === 'object' && body !== null ? body : {}
}
const isInitialize = (difference: Difference): boolean => message(difference).method === 'initialize'
const claims = (difference: Difference): boolean => {
  const { params } = message(difference) as { params?: { _meta?: object } }
  const meta = params?._meta
  return typeof meta === 'object' && meta !== null && 'io.modelcontextprotocol/protocolVersion' in meta
}

/**
 * Differences from the official servers, with the reason. Each entry names the section of the specification.
 * Section numbers refer to https://modelcontextprotocol.io/specification
 */
export const explained: readonly { reason: string; applies(difference: Difference): boolean }[] = [
  {
    reason:
      'Errors of our own never use -32000 to -32019 where JSON-RPC has a code for it (2026-07-28, basic: error codes).',
    applies: ({ mine, theirs }) =>
      theirs.said === 'error -32000' && mine.status === theirs.status && /^error -326\d\d$/.test(mine.said),
  },
  {
    reason: 'An error tells the id of its request wherever that could be read (JSON-RPC 2.0, section 5).',
    applies: ({ mine, theirs }) =>
      mine.status === theirs.status && mine.said === theirs.said && theirs.id === null && mine.id !== null,
  },
  {
    reason: 'What is JSON and yet no request is -32600, not -32700 (JSON-RPC 2.0, section 5.1).',
    applies: ({ judge, mine, theirs }) =>
      judge === 'the first version' &&
      theirs.said === 'error -32700' &&
      mine.said === 'error -32600' &&
      mine.status === theirs.status,
  },
  {
    reason: 'With two faults at once either may be told; both are a 400 (2026-07-28, transports: server validation).',
    applies: (difference) => {
      const both = [difference.mine, difference.theirs]
      return isInitialize(difference) && both.every(({ status, said }) => status === 400 && said.startsWith('error'))
    },
  },
  {
    reason:
      'Who sends initialize wants to negotiate, whatever its headers say (2025-11-25, lifecycle: initialization).',
    applies: (difference) =>
      isInitialize(difference) && difference.mine.status === 200 && difference.mine.said.includes('protocolVersion'),
  },
  {
    reason: 'A batch is answered as one up to 2025-03-26, and none exists later (2025-03-26, basic: batching).',
    applies: ({ wrong, sent, mine }) => {
      if (wrong !== 'a batch' && wrong !== 'an empty batch') return false
      const version = sent.headers['mcp-protocol-version'] ?? '2025-03-26'
      if (version > '2025-03-26' || wrong === 'an empty batch') return mine.said === 'error -32600'
      return mine.status === 200 && mine.said === 'batch of 1'
    },
  },
  {
    reason: 'Before 2025-11-25 wrong arguments are errors, and clients of these versions expect them as such.',
    applies: ({ sent, mine, theirs }) =>
      (sent.headers['mcp-protocol-version'] ?? '') < '2025-11-25' &&
      mine.said === 'error -32602' &&
      theirs.said === 'result {"isError":true}',
  },
  {
    reason:
      'A version claimed in _meta that the header does not repeat is -32020, one not served -32022 (2026-07-28, transports).',
    applies: (difference) =>
      claims(difference) && difference.mine.status === 400 && /-3202[02]$/.test(difference.mine.said),
  },
]
