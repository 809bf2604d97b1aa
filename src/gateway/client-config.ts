/** Configuration of MCP clients for one endpoint, in the format that the documentation of each client specifies. */

/** An endpoint that a client connects to. */
export interface ClientEndpoint {
  /** Name of the server in the configuration of the client. */
  name: string
  url: string
  /** API key; `null` if the server requires none. */
  key: string | null
}

type Json = Record<string, unknown>

interface ClientForm {
  /** Path of the configuration file, for display. */
  file: string
  /** Returns the content of the file. */
  body(endpoint: ClientEndpoint): Json
}

const bearer = ({ key }: ClientEndpoint): Record<string, string> =>
  key === null ? {} : { Authorization: `Bearer ${key}` }

const withHeaders = (endpoint: ClientEndpoint, field = 'headers'): Json =>
  endpoint.key === null ? {} : { [field]: bearer(endpoint) }

/** A header whose value the bridge reads from a variable: https://github.com/geelen/mcp-remote */
const authorizationOfVariable = ['Authorization:$', '{AUTH}'].join('')

/** The format of each client, with the page that documents it. */
const forms = {
  /** https://modelcontextprotocol.io/docs/develop/connect-local-servers: programs only, so a bridge connects to the URL. */
  claude: {
    file: 'claude_desktop_config.json',
    body: (endpoint) => ({
      mcpServers: {
        [endpoint.name]: {
          command: 'npx',
          // The variable contains the space of the header, since Claude Desktop on Windows does not quote arguments.
          args: [
            '-y',
            'mcp-remote',
            endpoint.url,
            // The bridge refuses addresses without TLS otherwise, except some of loopback.
            ...(endpoint.url.startsWith('http:') ? ['--allow-http'] : []),
            ...(endpoint.key === null ? [] : ['--header', authorizationOfVariable]),
          ],
          ...(endpoint.key !== null && { env: { AUTH: `Bearer ${endpoint.key}` } }),
        },
      },
    }),
  },
  /** https://code.claude.com/docs/en/mcp */
  'claude-code': {
    file: '.mcp.json',
    body: (endpoint) => ({
      mcpServers: { [endpoint.name]: { type: 'http', url: endpoint.url, ...withHeaders(endpoint) } },
    }),
  },
  /** https://cursor.com/docs/context/mcp */
  cursor: {
    file: '.cursor/mcp.json',
    body: (endpoint) => ({ mcpServers: { [endpoint.name]: { url: endpoint.url, ...withHeaders(endpoint) } } }),
  },
  /** https://docs.windsurf.com/windsurf/cascade/mcp */
  windsurf: {
    file: '~/.codeium/windsurf/mcp_config.json',
    body: (endpoint) => ({ mcpServers: { [endpoint.name]: { serverUrl: endpoint.url, ...withHeaders(endpoint) } } }),
  },
  /** https://code.visualstudio.com/docs/copilot/reference/mcp-configuration */
  vscode: {
    file: '.vscode/mcp.json',
    body: (endpoint) => ({
      servers: { [endpoint.name]: { type: 'http', url: endpoint.url, ...withHeaders(endpoint) } },
    }),
  },
  /** https://developers.openai.com/codex/mcp; `headers` would be ignored. */
  codex: {
    file: '~/.codex/config.toml',
    body: (endpoint) => ({
      mcp_servers: { [endpoint.name]: { url: endpoint.url, ...withHeaders(endpoint, 'http_headers') } },
    }),
  },
  /** https://opencode.ai/docs/mcp-servers */
  opencode: {
    file: 'opencode.json',
    body: (endpoint) => ({
      $schema: 'https://opencode.ai/config.json',
      mcp: { [endpoint.name]: { type: 'remote', url: endpoint.url, enabled: true, ...withHeaders(endpoint) } },
    }),
  },
  /** https://github.com/google-gemini/gemini-cli/blob/main/docs/tools/mcp-server.md */
  gemini: {
    file: '~/.gemini/settings.json',
    body: (endpoint) => ({ mcpServers: { [endpoint.name]: { httpUrl: endpoint.url, ...withHeaders(endpoint) } } }),
  },
  /** https://zed.dev/docs/ai/mcp */
  zed: {
    file: '~/.config/zed/settings.json',
    body: (endpoint) => ({ context_servers: { [endpoint.name]: { url: endpoint.url, ...withHeaders(endpoint) } } }),
  },
  /** https://docs.cline.bot/mcp: the file of its command line; the extensions of editors have one for each editor. */
  cline: {
    file: '~/.cline/data/settings/cline_mcp_settings.json',
    body: (endpoint) => ({
      mcpServers: {
        [endpoint.name]: { type: 'streamableHttp', url: endpoint.url, disabled: false, ...withHeaders(endpoint) },
      },
    }),
  },
  /** https://docs.continue.dev/customize/deep-dives/mcp: a file without a name and a version is refused as a whole. */
  continue: {
    file: '~/.continue/config.yaml',
    body: (endpoint) => ({
      ...{ name: 'Local config', version: '1.0.0', schema: 'v1' },
      mcpServers: [
        {
          ...{ name: endpoint.name, type: 'streamable-http', url: endpoint.url },
          ...(endpoint.key !== null && { requestOptions: { headers: bearer(endpoint) } }),
        },
      ],
    }),
  },
  /** https://block.github.io/goose/docs/getting-started/using-extensions */
  goose: {
    file: '~/.config/goose/config.yaml',
    body: (endpoint) => ({
      extensions: {
        [endpoint.name]: {
          ...{ type: 'streamable_http', enabled: true, name: endpoint.name, description: '' },
          ...{ uri: endpoint.url, timeout: 300 },
          headers: bearer(endpoint),
        },
      },
    }),
  },
  /** https://www.librechat.ai/docs/configuration/librechat_yaml/object_structure/mcp_servers: a file without a version is refused. */
  librechat: {
    file: 'librechat.yaml',
    body: (endpoint) => ({
      version: '1.3.17',
      mcpServers: { [endpoint.name]: { type: 'streamable-http', url: endpoint.url, ...withHeaders(endpoint) } },
    }),
  },
  /**
   * https://docs.openwebui.com/features/mcp: the body of its POST /api/v1/configs/tool_servers. The list alone is the value
   * of its environment variable of the same name.
   */
  'open-webui': {
    file: 'TOOL_SERVER_CONNECTIONS',
    body: (endpoint) => ({
      TOOL_SERVER_CONNECTIONS: [
        {
          ...{ type: 'mcp', url: endpoint.url, path: '' },
          ...{ auth_type: endpoint.key === null ? 'none' : 'bearer', key: endpoint.key ?? '' },
          ...{ config: { enable: true }, info: { id: endpoint.name, name: endpoint.name, description: '' } },
        },
      ],
    }),
  },
} as const satisfies Record<string, ClientForm>

export type McpClientName = keyof typeof forms
export const mcpClientNames = Object.keys(forms) as McpClientName[]

export const isMcpClient = (name: string): name is McpClientName => Object.hasOwn(forms, name)

/** Returns the path and the content of the file that a client reads, with the entry for one endpoint. */
export const clientConfig = (client: McpClientName, endpoint: ClientEndpoint): { file: string; body: Json } => {
  const { file, body } = forms[client]
  return { file, body: body(endpoint) }
}

/** Returns the configuration of Codex as TOML, the format of its file. */
export function codexToml({ name, url, key }: ClientEndpoint): string {
  const lines = [`[mcp_servers.${JSON.stringify(name)}]`, `url = ${JSON.stringify(url)}`]
  if (key !== null) lines.push(`http_headers = { Authorization = ${JSON.stringify(`Bearer ${key}`)} }`)
  return `${lines.join('\n')}\n`
}
