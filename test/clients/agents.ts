/** Coding agents as people run them: each with a home of its own, the scripted model, and our server as its only tool. */
import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { type ClientName, installed } from './packages.ts'
import { nodeProgram, pythonProgram, runProgram } from './programs.ts'
import type { Received, ScriptedModel, ToolCall } from './scripted-model.ts'

export interface Agent {
  title: string
  client: ClientName
  /** Writes the configuration into a home and returns how to start the agent with one request. */
  prepare(home: string, session: Session): Promise<Start>
}

export interface Session {
  model: ScriptedModel
  /** The URL of our endpoint; `undefined` if `configure` writes it into the file of the agent. */
  mcpUrl: string | undefined
  /** The API key; `undefined` to send none. */
  key: string | undefined
  /** Adds to the files of the agent, as a person would before starting it. @param directory where it is started. */
  configure?: (home: string, directory: string) => Promise<void>
}

interface Start {
  /** The program and its arguments. */
  command: readonly [string, ...string[]]
  env?: Readonly<Record<string, string>>
  /** The standard input, as JSON. */
  input?: object
}

export interface Outcome {
  /** The names of the tools that the model was offered. */
  tools: readonly string[]
  results: readonly Received[]
  /** What the agent printed, on both streams. */
  printed: string
}

const prompt = 'run it'
const bearer = (key: string | undefined) => (key === undefined ? {} : { headers: { Authorization: `Bearer ${key}` } })

/** https://code.claude.com/docs/en/mcp and https://code.claude.com/docs/en/env-vars */
const claudeCode: Agent = {
  title: 'Claude Code',
  client: 'claude-code',
  prepare: async (home, { model, mcpUrl, key }) => {
    const config = join(home, 'mcp.json')
    const server = { type: 'http', url: mcpUrl, ...bearer(key) }
    if (mcpUrl !== undefined) await writeFile(config, JSON.stringify({ mcpServers: { glovebox: server } }))
    // Otherwise it reads .mcp.json where it is started, and would ask whether to trust it.
    const files =
      mcpUrl === undefined
        ? ['--settings', JSON.stringify({ enableAllProjectMcpServers: true })]
        : ['--mcp-config', config, '--strict-mcp-config']
    return {
      command: [
        process.execPath,
        installed('claude-code', 'node_modules/@anthropic-ai/claude-code/cli-wrapper.cjs'),
        ...['--print', prompt, '--output-format', 'stream-json', '--verbose', '--model', 'scripted'],
        ...[...files, '--allowedTools', 'mcp__glovebox', '--tools', ''],
      ],
      env: {
        ANTHROPIC_BASE_URL: model.url,
        ANTHROPIC_API_KEY: 'sk-ant-none',
        CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC: '1',
        DISABLE_TELEMETRY: '1',
        DISABLE_ERROR_REPORTING: '1',
        DISABLE_AUTOUPDATER: '1',
        // Offers all tools at once, and only after the server has answered.
        ENABLE_TOOL_SEARCH: 'false',
        MCP_CONNECTION_NONBLOCKING: '0',
      },
    }
  },
}

/** https://developers.openai.com/codex/config-reference */
const codex: Agent = {
  title: 'Codex',
  client: 'codex',
  prepare: async (home, { model, mcpUrl, key }) => {
    const lines = [
      'model = "scripted"',
      'model_provider = "scripted"',
      'approval_policy = "never"',
      'sandbox_mode = "read-only"',
      'check_for_update_on_startup = false',
      '[analytics]',
      'enabled = false',
      '[features]',
      // Each of them asks a server on the Internet for its catalogue.
      'plugins = false',
      'remote_plugin = false',
      'apps = false',
      '[model_providers.scripted]',
      'name = "Scripted"',
      `base_url = "${model.url}/v1"`,
      'wire_api = "responses"',
      ...(mcpUrl === undefined
        ? []
        : ['[mcp_servers.glovebox]', `url = "${mcpUrl}"`, 'default_tools_approval_mode = "approve"']),
      ...(mcpUrl === undefined || key === undefined ? [] : ['bearer_token_env_var = "GLOVEBOX_API_KEY"']),
    ]
    await mkdir(join(home, '.codex'))
    await writeFile(join(home, '.codex/config.toml'), lines.join('\n'))
    return {
      command: [
        process.execPath,
        installed('codex', 'node_modules/@openai/codex/bin/codex.js'),
        'exec',
        '--skip-git-repo-check',
        prompt,
      ],
      env: key === undefined ? {} : { GLOVEBOX_API_KEY: key },
    }
  },
}

/** https://geminicli.com/docs/reference/configuration and https://geminicli.com/docs/tools/mcp-server */
const gemini: Agent = {
  title: 'Gemini CLI',
  client: 'gemini-cli',
  prepare: async (home, { model, mcpUrl, key }) => {
    const settings = {
      security: { auth: { selectedType: 'gemini-api-key' }, folderTrust: { enabled: false } },
      privacy: { usageStatisticsEnabled: false },
      telemetry: { enabled: false },
      general: { enableAutoUpdate: false, enableAutoUpdateNotification: false },
      ...(mcpUrl !== undefined && { mcpServers: { glovebox: { httpUrl: mcpUrl, trust: true, ...bearer(key) } } }),
    }
    await mkdir(join(home, '.gemini'))
    await writeFile(join(home, '.gemini/settings.json'), JSON.stringify(settings))
    return {
      command: [
        process.execPath,
        installed('gemini-cli', 'node_modules/@google/gemini-cli/bundle/gemini.js'),
        ...['--model', 'gemini-2.5-pro', '--approval-mode', 'yolo', '--prompt', prompt],
      ],
      env: { GOOGLE_GEMINI_BASE_URL: model.url, GEMINI_API_KEY: 'none' },
    }
  },
}

/** https://openai.github.io/openai-agents-js/guides/mcp */
const openaiAgents: Agent = {
  title: 'OpenAI Agents SDK',
  client: 'openai-agents',
  prepare: async (_, { model, mcpUrl, key }) => ({
    command: nodeProgram('openai-agents', 'openai-agents.mjs'),
    input: { url: mcpUrl, key, modelUrl: model.url },
  }),
}

/** https://docs.agno.com/concepts/tools/mcp */
const agno: Agent = {
  title: 'Agno',
  client: 'python-mcp-2',
  prepare: async (_, { model, mcpUrl, key }) => ({
    command: pythonProgram('python-mcp-2', 'agno-agent.py'),
    input: { url: mcpUrl, key, modelUrl: model.url },
  }),
}

export const agents: readonly Agent[] = [claudeCode, codex, gemini, openaiAgents, agno]

/**
 * Runs one session of an agent, whose model makes these calls, turn by turn.
 * @throws Error when the agent tried to reach anything but this machine.
 */
export async function runSession(
  agent: Agent,
  session: Session,
  turns: readonly (readonly ToolCall[])[],
): Promise<Outcome> {
  const { model } = session
  const home = await mkdtemp(join(tmpdir(), 'glovebox-agent-'))
  try {
    const directory = join(home, 'project')
    await mkdir(directory)
    const start = await agent.prepare(home, session)
    await session.configure?.(home, directory)
    model.follow(turns)
    const { out, err } = await runProgram(start.command, {
      home,
      directory,
      proxy: model.url,
      env: start.env,
      input: start.input,
    })
    if (model.outbound.length > 0) throw new Error(`${agent.title} tried to reach ${model.outbound.join(', ')}`)
    const { tools, results } = model.conversation
    return { tools, results, printed: `${out}\n${err}` }
  } finally {
    await rm(home, { recursive: true, force: true })
  }
}
