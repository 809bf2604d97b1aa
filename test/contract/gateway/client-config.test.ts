/** The whole entry of each client, as its documentation or source specifies it: see the links in client-config.ts. */
import { describe, expect, it } from 'vitest'
import { clientConfig, type McpClientName, mcpClientNames } from '../../../src/gateway/client-config.ts'

const url = 'https://glovebox.example/exa/exa/sse'
const headers = { Authorization: 'Bearer sb-key' }

const entries: Record<McpClientName, object> = {
  claude: {
    mcpServers: {
      exa: {
        command: 'npx',
        args: ['-y', 'mcp-remote', url, '--header', ['Authorization:$', '{AUTH}'].join('')],
        env: { AUTH: 'Bearer sb-key' },
      },
    },
  },
  'claude-code': { mcpServers: { exa: { type: 'http', url, headers } } },
  cursor: { mcpServers: { exa: { url, headers } } },
  windsurf: { mcpServers: { exa: { serverUrl: url, headers } } },
  vscode: { servers: { exa: { type: 'http', url, headers } } },
  codex: { mcp_servers: { exa: { url, http_headers: headers } } },
  opencode: {
    $schema: 'https://opencode.ai/config.json',
    mcp: { exa: { type: 'remote', url, enabled: true, headers } },
  },
  gemini: { mcpServers: { exa: { httpUrl: url, headers } } },
  zed: { context_servers: { exa: { url, headers } } },
  cline: { mcpServers: { exa: { type: 'streamableHttp', url, disabled: false, headers } } },
  continue: {
    ...{ name: 'Local config', version: '1.0.0', schema: 'v1' },
    mcpServers: [{ name: 'exa', type: 'streamable-http', url, requestOptions: { headers } }],
  },
  goose: {
    extensions: {
      exa: {
        ...{ type: 'streamable_http', enabled: true, name: 'exa', description: '', uri: url, timeout: 300, headers },
      },
    },
  },
  librechat: { version: '1.3.17', mcpServers: { exa: { type: 'streamable-http', url, headers } } },
  'open-webui': {
    TOOL_SERVER_CONNECTIONS: [
      {
        ...{ type: 'mcp', url, path: '', auth_type: 'bearer', key: 'sb-key' },
        ...{ config: { enable: true }, info: { id: 'exa', name: 'exa', description: '' } },
      },
    ],
  },
}

describe('the configuration of a client', () => {
  it.each(mcpClientNames)('has the form that %s reads', (client) => {
    expect(clientConfig(client, { name: 'exa', url, key: 'sb-key' }).body).toEqual(entries[client])
  })

  it.each(mcpClientNames)('of %s contains no credential where none is needed', (client) => {
    const text = JSON.stringify(clientConfig(client, { name: 'exa', url, key: null }).body)
    expect([text.includes(url), /Authorization|Bearer|null|AUTH/.test(text)]).toEqual([true, false])
  })

  it('permits the bridge of Claude Desktop an address without TLS, if the endpoint has one', () => {
    const { body } = clientConfig('claude', { name: 'exa', url: 'http://10.0.0.1:8080/mcp', key: null })
    expect(body).toMatchObject({
      mcpServers: { exa: { args: ['-y', 'mcp-remote', expect.any(String), '--allow-http'] } },
    })
  })
})
