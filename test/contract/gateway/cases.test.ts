/**
 * Faults that users of other gateways have reported in public, and the tests that show the right behaviour here. Each row can be
 * checked by running the named test.
 */
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'

const root = join(import.meta.dirname, '../../..')

interface Case {
  /** Project and number of the report. */
  reported: string
  behaviour: string
  /** Files and titles of tests. */
  tests: readonly (readonly [file: string, title: string])[]
}

const cases: readonly Case[] = [
  {
    reported: 'metamcp#294',
    behaviour: 'a lost session is opened again once, and the call is executed once',
    tests: [
      [
        'protocol/gateway-sessions',
        'is opened again once the upstream has forgotten it, and the call is executed once',
      ],
      ['protocol/gateway-sessions', 'is given up where the upstream forgets every session at once, with its error'],
    ],
  },
  {
    reported: 'metamcp#272',
    behaviour: 'a program has one sandbox for each server and credential',
    tests: [['protocol/gateway-stdio-keys', 'have sandboxes of their own, one for each server and credential']],
  },
  {
    reported: 'metamcp#162',
    behaviour: 'programs are limited in number, and ended when they are idle or abandoned',
    tests: [
      [
        'protocol/gateway-stdio',
        'is limited in number for each organization, and makes room for another one when it is unused',
      ],
      ['protocol/gateway-stdio', 'is ended when it is idle, and at the end of its lifetime'],
      ['protocol/gateway-stdio-keys', 'is ended when its client ends its session'],
    ],
  },
  {
    reported: 'supergateway#108, supergateway#148, supergateway#137',
    behaviour: 'a program is executed without a shell, and killed with everything that it has started',
    tests: [
      ['protocol/gateway-stdio', 'gets its arguments exactly, without a shell'],
      ['protocol/gateway-stdio', 'is stopped with what it has started when it is disabled or removed'],
      ['stories/gateway-programs', 'is registered with its command, runs in a sandbox, and is ended with its daemons'],
    ],
  },
  {
    reported: 'litellm#24625',
    behaviour: 'only administrators register programs, which run in a sandbox that reaches nothing of the machine',
    tests: [
      ['protocol/gateway-stdio-keys', 'is registered by administrators only'],
      ['stories/gateway-programs', 'reads no credential of another upstream, no file of the host and no server of it'],
    ],
  },
  {
    reported: 'metamcp#142, ContextForge#1023',
    behaviour:
      'tokens are renewed early and when they are rejected; an ended login is an error that says how to renew it',
    tests: [
      ['protocol/gateway-oauth', 'renews its token before it expires'],
      ['protocol/gateway-oauth', 'renews a rejected token once, however many calls it rejects'],
      ['protocol/gateway-oauth', 'answers with how to log in again once its login has ended, and works after that'],
    ],
  },
  {
    reported: 'supergateway#35, ContextForge#4205',
    behaviour: 'keys share no session and no stream',
    tests: [
      ['protocol/gateway-sessions', 'is never shared by two keys'],
      ['protocol/gateway-eras', 'opens one session for all its messages, and shares none with another key'],
      ['protocol/gateway-sse', 'has a session that other keys cannot use, and that ends with its stream'],
      ['protocol/gateway-stdio', 'has a process for each session, and one for each key without sessions'],
      [
        'protocol/gateway-stdio',
        'is one process for all keys if it is shared, and passes nothing of one client to another',
      ],
      [
        'protocol/gateway-stdio-keys',
        'read nothing of what the process of another key has written, nor does an administrator',
      ],
      ['protocol/gateway-stdio-keys', 'read only what their own process has written before it ended'],
    ],
  },
  {
    reported: 'agentgateway#1266, agentgateway#1029',
    behaviour: 'one upstream that is down changes neither the list nor calls of others, and is reported',
    tests: [
      ['protocol/gateway-aggregated', 'lists the tools of all upstreams beside our own, also of one that is down'],
      ['protocol/gateway-aggregated', 'calls tools of every upstream and our own, and reports one that is down'],
      ['protocol/gateway-stdio-keys', 'does not keep other keys from the server'],
    ],
  },
  {
    reported: 'mcp-gateway-registry#1460',
    behaviour: 'a stream is passed on piece by piece, with its progress',
    tests: [
      ['protocol/gateway-relay', 'arrives piece by piece, before the upstream has finished'],
      ['protocol/gateway-aggregated', 'passes on the progress of a call, and its errors as results'],
    ],
  },
  {
    reported: 'ContextForge#6481',
    behaviour: 'calls of a key use one session, so that only the first one waits for it',
    tests: [['protocol/gateway-sessions', 'is used for all calls of a key, so that only the first call waits for it']],
  },
  {
    reported: 'ContextForge#4557, lunar MCPX#55',
    behaviour: 'a message needs no session of the client, so that any server can answer it',
    tests: [
      ['protocol/gateway-relay', 'reaches an upstream that requires a session, without one of the client'],
      [
        'protocol/gateway-sse',
        'answers single messages without a session, over one stream per key, and is refused questions',
      ],
    ],
  },
  {
    reported: 'toolhive#6497',
    behaviour: 'an upstream that refuses GET requests is healthy',
    tests: [['protocol/gateway-hostile', 'that refuses GET requests is healthy']],
  },
  {
    reported: 'toolhive#5796',
    behaviour: 'upstreams with and without sessions, and of every version, can be used',
    tests: [
      ['protocol/gateway-relay', 'connects, lists and calls the tools of a %s upstream'],
      ['protocol/gateway-eras', 'lists and calls the tools of %s'],
    ],
  },
  {
    reported: 'toolhive#6687',
    behaviour: 'timeouts count as failures, and an upstream that never answers is not called for a while',
    tests: [
      ['protocol/gateway-sessions', 'is not called for a while after five timeouts in a row'],
      ['protocol/gateway-sse', 'is asked in the older version once, and not with every message'],
    ],
  },
  {
    reported: 'litellm#38208',
    behaviour: 'the credential of the client and that of the upstream are never mixed',
    tests: [
      ['protocol/gateway-relay', 'carries the credential of the upstream and none of the client'],
      ['protocol/gateway-relay', 'is 401 without a valid key'],
    ],
  },
  {
    reported: 'docker/mcp-gateway#554',
    behaviour: 'an empty credential is refused, and never sent as nothing',
    tests: [
      [
        'protocol/gateway-relay',
        'is 502 configuration_error when its credential is empty or its address is no longer allowed',
      ],
      ['protocol/gateway-stdio-keys', 'is refused where its credential has no value, and not started'],
    ],
  },
  {
    reported: 'docker/mcp-gateway#334',
    behaviour: 'suspicious descriptions block nothing, and arguments that look like secrets are accepted with a reason',
    tests: [
      ['protocol/gateway-policy', 'is not reported for an ordinary description in any language'],
      ['contract/core/upstream-programs', 'is refused in %s, and accepted with the reason why it is not one'],
    ],
  },
  {
    reported: 'GHSA-489g-7rxv-6c8q, mcp-atlassian',
    behaviour: 'all addresses of a name are checked, the connection uses a checked one, and redirects are refused',
    tests: [
      ['contract/outbound/outbound', 'resolves the name once, so that a rebinding name has no effect'],
      ['contract/outbound/outbound', 'is rejected when one of several addresses is not allowed'],
      ['contract/outbound/address', 'is not public for any address of a special network'],
      [
        'contract/outbound/address',
        'is not public for any form of IPv6 that embeds an IPv4 address, whichever that is',
      ],
      [
        'protocol/gateway-relay',
        'is 502 when nothing listens, when it answers with an error or a redirect, or is no HTTP server',
      ],
    ],
  },
  {
    reported: 'Hmbown/Codewhale#1309, envoyproxy/ai-gateway#1398',
    behaviour: 'every line ending, cut, comment and split of data is read alike',
    tests: [
      ['protocol/gateway-hostile', '%s is read'],
      ['contract/gateway/events', 'is between two events at its end, and never inside one'],
    ],
  },
  {
    reported: 'neutree-ai/agent-platform#224, agentgateway#621',
    behaviour: 'uncompressed responses are requested, and a compressed one is refused',
    tests: [['protocol/gateway-relay', 'is 502 when it compresses its response without being asked to']],
  },
  {
    reported: 'agentgateway#3476, mcp-context-forge#6635',
    behaviour: 'all pages of a list are read, and pages without end are refused',
    tests: [
      ['protocol/gateway-listing', 'are read from all pages'],
      ['protocol/gateway-listing', 'are read up to a cursor that repeats'],
      ['protocol/gateway-listing', 'are refused where the pages have no end, after a bounded number of requests'],
    ],
  },
  {
    reported: 'typescript-sdk#583',
    behaviour: 'a client of the older transport gets an address that is valid behind a proxy with a path',
    tests: [['protocol/gateway-sse', 'gets an address for messages that works behind a proxy with a path']],
  },
  {
    reported: 'docker/mcp-gateway#549',
    behaviour: 'the tool that calls other tools obeys the same policy as a direct call',
    tests: [
      ['protocol/gateway-aggregated', 'obeys the limits of a key also through tool_call'],
      ['protocol/gateway-policy', 'obeys the policy of the key, and is counted, like any other'],
    ],
  },
  {
    reported: 'toolhive#1545',
    behaviour: 'an administrator sees the approved and the current version of a tool',
    tests: [['stories/gateway', 'shows what has changed, and offers it again once it is approved']],
  },
  {
    reported: 'obot#5683',
    behaviour: 'usage can be read by key, and a limited key sees its own',
    tests: [['protocol/gateway-catalog', 'is added up by server, tool, key and day']],
  },
]

describe('a fault that was reported for other gateways', () => {
  it.each(cases)('has a test: $reported', ({ tests }) => {
    for (const [file, title] of tests) {
      const text = readFileSync(join(root, 'test', `${file}.test.ts`), 'utf8')
      const titles = [...text.matchAll(/\bit(?:\.\w+(?:<[^(]*>)?\([\s\S]*?\))?\(\s*(['"`])(.*?)\1/g)].map(
        ([, , named]) => named,
      )
      expect(titles, file).toContain(title)
    }
  })
})
