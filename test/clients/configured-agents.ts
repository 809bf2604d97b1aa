/** Coding agents whose file for our server `glovebox config` writes, each with the scripted model. */
import { mkdir, writeFile } from 'node:fs/promises'
import { dirname, join } from 'node:path'
import type { McpClientName } from '../../src/gateway/client-config.ts'
import type { Agent } from './agents.ts'
import { installed } from './packages.ts'

const prompt = 'run it'

async function writeFileIn(path: string, content: string): Promise<void> {
  await mkdir(dirname(path), { recursive: true })
  await writeFile(path, content)
}

export interface ConfiguredAgent extends Agent {
  /** The name that `glovebox config` has for it. */
  name: McpClientName
}

/** https://opencode.ai/docs/config */
const opencode: ConfiguredAgent = {
  title: 'opencode',
  name: 'opencode',
  client: 'opencode',
  prepare: async (_, { model }) => {
    const provider = {
      options: { baseURL: `${model.url}/v1`, apiKey: 'none' },
      models: { scripted: { name: 'Scripted', modalities: { input: ['text', 'image'], output: ['text'] } } },
    }
    const settings = {
      ...{ provider: { anthropic: provider }, model: 'anthropic/scripted', small_model: 'anthropic/scripted' },
      ...{ share: 'disabled', autoupdate: false },
    }
    return {
      command: [installed('opencode', `node_modules/opencode-linux-${process.arch}/bin/opencode`), 'run', prompt],
      env: {
        OPENCODE_CONFIG_CONTENT: JSON.stringify(settings),
        OPENCODE_DISABLE_MODELS_FETCH: '1',
        OPENCODE_DISABLE_AUTOUPDATE: '1',
        OPENCODE_DISABLE_DEFAULT_PLUGINS: '1',
        // It installs a package for plugins in the background, and continues without it.
        npm_config_registry: model.url,
      },
    }
  },
}

/** https://docs.continue.dev/reference */
const continueCli: ConfiguredAgent = {
  title: 'Continue',
  name: 'continue',
  client: 'continue',
  prepare: async (home, { model }) => {
    const file = join(home, '.continue/config.yaml')
    const lines = [
      ...[
        'name: test',
        'version: 1.0.0',
        'models:',
        '  - name: scripted',
        '    provider: anthropic',
        '    model: scripted',
        '    apiKey: none',
      ],
      ...[`    apiBase: ${model.url}/v1/`, '    roles: [chat]', '    capabilities: [tool_use, image_input]'],
    ]
    await writeFileIn(file, `${lines.join('\n')}\n`)
    return {
      command: [
        process.execPath,
        installed('continue', 'node_modules/@continuedev/cli/dist/cn.js'),
        ...['--print', '--auto', '--config', file, prompt],
      ],
      env: { CONTINUE_TELEMETRY_ENABLED: '0', CONTINUE_CLI_ENABLE_TELEMETRY: '0' },
    }
  },
}

/** https://docs.cline.bot/cline-cli/cli-reference */
const cline: ConfiguredAgent = {
  title: 'Cline',
  name: 'cline',
  client: 'cline',
  prepare: async (home, { model }) => {
    const settings = join(home, '.cline/data/settings')
    const provider = {
      settings: {
        ...{ provider: 'openai-compatible', apiKey: 'none', model: 'scripted', baseUrl: `${model.url}/v1` },
      },
      ...{ updatedAt: '2026-01-01T00:00:00.000Z', tokenSource: 'manual' },
    }
    const providers = { version: 1, lastUsedProvider: 'openai-compatible', modes: {} }
    const all = { ...providers, providers: { 'openai-compatible': provider } }
    await writeFileIn(join(settings, 'providers.json'), JSON.stringify(all))
    const choices = { telemetryOptOut: true, autoUpdateEnabled: false }
    await writeFileIn(join(settings, 'global-settings.json'), JSON.stringify(choices))
    return {
      command: [installed('cline', `node_modules/@cline/cli-linux-${process.arch}/bin/cline`), prompt, '--json'],
      // Without a process that stays in the background, and without asking a server for switches.
      env: { CLINE_SESSION_BACKEND_MODE: 'local', IS_TEST: 'true' },
    }
  },
}

/** https://block.github.io/goose/docs/guides/environment-variables */
const goose: ConfiguredAgent = {
  title: 'Goose',
  name: 'goose',
  client: 'goose',
  prepare: async (_, { model }) => {
    return {
      command: [
        installed('goose', `node_modules/@aaif/goose-binary-linux-${process.arch}/bin/goose`),
        ...['run', '--no-session', '--text', prompt],
      ],
      env: {
        GOOSE_PROVIDER: 'openai',
        GOOSE_MODEL: 'scripted',
        OPENAI_HOST: model.url,
        OPENAI_API_KEY: 'none',
        GOOSE_DISABLE_KEYRING: '1',
        GOOSE_MODE: 'auto',
        GOOSE_TELEMETRY_ENABLED: 'false',
      },
    }
  },
}

export const configuredAgents: readonly ConfiguredAgent[] = [opencode, continueCli, cline, goose]
