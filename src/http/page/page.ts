import { type ClientEndpoint, clientConfig, codexToml, mcpClientNames } from '../../gateway/client-config.ts'
import { baseUrlOf } from '../base-url.ts'
import { serverGroup } from '../health.ts'
import type { Operation } from '../operation.ts'
import { asset, type Html, html, sendPart } from './html.ts'

/** What the page shows of the server. It reveals nothing that needs a key. */
interface Shown {
  url: string
  version: string
  /** Whether callers need no key. */
  dev: boolean
  readiness: { ready: true } | { ready: false; reason: string }
}

/** Stands for the key in examples. */
const keyPlaceholder = 'YOUR_KEY'

const clientTitles: Readonly<Record<string, string>> = {
  claude: 'Claude Desktop',
  'claude-code': 'Claude Code',
  vscode: 'VS Code',
  opencode: 'OpenCode',
  gemini: 'Gemini CLI',
  librechat: 'LibreChat',
  'open-webui': 'Open WebUI',
}

const titleOf = (client: string): string => clientTitles[client] ?? `${client[0]!.toUpperCase()}${client.slice(1)}`

function clientPanel(client: (typeof mcpClientNames)[number], endpoint: ClientEndpoint): Html {
  const { file, body } = clientConfig(client, endpoint)
  const text = client === 'codex' ? codexToml(endpoint) : JSON.stringify(body, null, 2)
  return html`
<div data-client="${client}">
  <p>Add this to <code>${file}</code>:</p>
  <pre id="config-${client}" tabindex="0">${text}</pre>
  <button type="button" data-copy="config-${client}">Copy the configuration for ${titleOf(client)}</button>
</div>`
}

function pageOf({ url, version, dev, readiness }: Shown): Html {
  const endpoint = { name: 'glovebox', url: `${url}/mcp`, key: dev ? null : keyPlaceholder }
  const header = dev ? '' : ` --header "Authorization: Bearer ${keyPlaceholder}"`
  const keyField = html`
    <label for="key">API key</label>
    <input id="key" type="password" autocomplete="off" size="48">`
  return html`<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Glovebox</title>
<link rel="stylesheet" href="assets/page.css">
<script type="module" src="assets/page.js"></script>
</head>
<body>
<header>
  <h1>Glovebox</h1>
  <p class="soft">Version ${version}. ${dev ? 'Development mode: callers on this machine need no key.' : 'Callers need a key.'}</p>
  <p class="state ${readiness.ready ? 'ready' : 'not-ready'}">${
    readiness.ready ? 'Ready: runs can start.' : `Not ready: ${readiness.reason}`
  }</p>
</header>
<main>
<section aria-labelledby="connect">
  <h2 id="connect">Connect a client</h2>
  <p>MCP endpoint (Streamable HTTP):</p>
  <pre id="endpoint" tabindex="0">${endpoint.url}</pre>
  <button type="button" data-copy="endpoint">Copy the address</button>
  <p>Claude Code:</p>
  <pre id="claude-command" tabindex="0">claude mcp add --transport http glovebox ${endpoint.url}${header}</pre>
  <button type="button" data-copy="claude-command">Copy the command</button>
  <label for="client">Configuration for</label>
  <select id="client">
    ${mcpClientNames.map((name) => html`<option value="${name}">${titleOf(name)}</option>`)}
  </select>
  ${mcpClientNames.map((name) => clientPanel(name, endpoint))}
  <p id="copied" role="status" class="soft"></p>
</section>
<section aria-labelledby="try">
  <h2 id="try">Run code</h2>
  <form id="run">
    ${dev ? '' : keyField}
    <label for="language">Language</label>
    <select id="language">
      <option>python</option><option>node</option><option>typescript</option><option>bash</option>
    </select>
    <label for="code">Code</label>
    <textarea id="code" rows="8" spellcheck="false" autocapitalize="off">print(6 * 7)</textarea>
    <button id="start">Run</button>
    <button id="stop" type="button" disabled>Stop</button>
    <span class="soft">Ctrl+Enter runs the code.</span>
  </form>
  <p id="outcome" role="status"></p>
  <pre id="output" role="log" tabindex="0" aria-label="Output"></pre>
  <div id="images"></div>
</section>
<section aria-labelledby="more">
  <h2 id="more">More</h2>
  <ul>
    <li><a href="console">Console for operators</a>, with an admin token</li>
    <li><a href="docs">Documentation</a>, with <a href="docs/operations">every operation</a> of the REST API</li>
    <li><a href="openapi.json">OpenAPI description of the REST API</a></li>
    <li><a href="readyz">State of the server as JSON</a></li>
    <li><a href="metrics">Metrics for Prometheus</a>${dev ? '' : ', with an admin token'}</li>
  </ul>
</section>
</main>
</body>
</html>
`
}

const part = { method: 'GET', access: 'open', capability: null, group: serverGroup, refusals: [] } as const

export const pageOperations: readonly Operation[] = [
  {
    ...part,
    id: 'page',
    path: '/',
    summary: 'Get a page for people: the state of the server, how to connect clients, and a form that runs code',
    answers: { 200: { mediaType: 'text/html' } },
    handler:
      ({ core, version, dev, ...addressing }) =>
      async (request, reply) => {
        const url = baseUrlOf(request, addressing)
        return sendPart(reply, 'text/html', pageOf({ url, version, dev, readiness: core.readiness }).text)
      },
  },
  {
    ...part,
    id: 'pageStyle',
    path: '/assets/page.css',
    summary: 'Get the style of the page',
    answers: { 200: { mediaType: 'text/css' } },
    handler: () => {
      const style = asset('page.css')
      return async (_request, reply) => sendPart(reply, 'text/css', style)
    },
  },
  {
    ...part,
    id: 'pageScript',
    path: '/assets/page.js',
    summary: 'Get the script of the page',
    answers: { 200: { mediaType: 'text/javascript' } },
    handler: () => {
      const script = asset('browser.js')
      return async (_request, reply) => sendPart(reply, 'text/javascript', script)
    },
  },
]
