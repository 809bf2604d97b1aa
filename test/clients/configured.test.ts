/** What `glovebox config CLIENT --write` writes, read by the programs and the published schemas of the clients. */
import { writeFile } from 'node:fs/promises'
import { createRequire } from 'node:module'
import { join } from 'node:path'
import { pathToFileURL } from 'node:url'
import { Client } from '@modelcontextprotocol/sdk/client/index.js'
import { StdioClientTransport } from '@modelcontextprotocol/sdk/client/stdio.js'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { parse } from 'yaml'
import { entryText } from '../../src/cli/client-file.ts'
import { program } from '../support/glovebox.ts'
import { newKey, type OwnKey } from '../support/keys.ts'
import { openStory } from '../support/story.ts'
import { runSession } from './agents.ts'
import { cases, cellOf } from './cases.ts'
import { configuredAgents } from './configured-agents.ts'
import { describeClient } from './describe-client.ts'
import { whileHeld } from './held-thread.ts'
import { installed } from './packages.ts'
import { runProgram, sessionWithinMs } from './programs.ts'
import { ScriptedModel } from './scripted-model.ts'
import { documentedRow } from './table.ts'

const root = join(import.meta.dirname, '../..')

const story = openStory([
  ...['--no-dev', '--no-structured-results', '--mcp-output', '30000'],
  ...['--limit-thread', '64MiB', '--storage-reserve', '0'],
])
let key: OwnKey
let model: ScriptedModel
beforeAll(async () => {
  key = await newKey(story.place)
  model = await ScriptedModel.open()
})
afterAll(() => model.close())

for (const agent of configuredAgents) {
  await describeClient(agent.title, agent.client, () => {
    it(
      'reads the file of glovebox config --write, and its model receives what docs/clients.md says',
      async () => {
        let printed = ''
        const configure = async (home: string, directory: string) => {
          const keyFile = join(home, 'key')
          await writeFile(keyFile, key.secret, { mode: 0o600 })
          const words = ['config', agent.name, '--write', '--url', story.url, '--key-file', keyFile]
          const { out, err } = await runProgram([program, ...words], { home, directory, proxy: '' })
          printed = out + err
        }
        const turns = cases.map(({ call }) => [call])
        const session = { model, mcpUrl: undefined, key: undefined, configure }
        const outcome = await whileHeld(story.url, key, () => runSession(agent, session, turns))
        expect(printed).toMatch(/^Changed .+\. Restart the client to apply it\.$/m)
        expect(outcome.results, printed + outcome.printed).toHaveLength(cases.length)
        expect(cases.map((each, index) => cellOf(each, outcome.results[index]!))).toEqual(documentedRow(agent.title))
      },
      sessionWithinMs,
    )
  })
}

const endpoint = { name: 'glovebox', url: 'https://box.example.com/mcp', key: 'sk-us-key' }

interface Schema {
  parse(value: unknown): object
}

await describeClient('The schema of LibreChat', 'librechat', () => {
  it('accepts a file that contains only the entry', () => {
    const { configSchema } = createRequire(installed('librechat', 'package.json'))('librechat-data-provider') as {
      configSchema: Schema & { strict(): Schema }
    }
    const file: unknown = parse(entryText('librechat', endpoint))
    const read = configSchema.strict().parse(file)
    expect(read).toMatchObject({ mcpServers: { glovebox: { url: endpoint.url, headers: expect.any(Object) } } })
    expect(() => configSchema.strict().parse({ ...(file as object), version: undefined })).toThrow('version')
  })
})

await describeClient('The schema of Continue', 'continue', () => {
  it('accepts a file that contains only the entry', async () => {
    const file = installed('continue', 'node_modules/@continuedev/config-yaml/dist/index.js')
    const { configYamlSchema } = (await import(pathToFileURL(file).href)) as { configYamlSchema: Schema }
    const read = configYamlSchema.parse(parse(entryText('continue', endpoint)))
    expect(read).toMatchObject({
      mcpServers: [{ url: endpoint.url, requestOptions: { headers: { Authorization: 'Bearer sk-us-key' } } }],
    })
    expect(() => configYamlSchema.parse({ mcpServers: [] })).toThrow('version')
  })
})

describe('The entry of Claude Desktop', () => {
  it('starts a bridge that connects to the server', async () => {
    const text = entryText('claude', { name: 'glovebox', url: `${story.url}/mcp`, key: key.secret })
    const { mcpServers } = JSON.parse(text) as {
      mcpServers: { glovebox: { command: string; args: string[]; env: Record<string, string> } }
    }
    // As npx would start it, without asking a registry.
    const { args, env } = mcpServers.glovebox
    const bridge = join(root, 'node_modules/mcp-remote/dist/proxy.js')
    const home = story.place.directory
    const client = new Client({ name: 'test', version: '1' })
    await client.connect(
      new StdioClientTransport({
        ...{ command: process.execPath, args: [bridge, ...args.slice(2)], stderr: 'ignore' },
        env: { ...env, HOME: home, MCP_REMOTE_CONFIG_DIR: home },
      }),
    )
    expect((await client.listTools()).tools.map(({ name }) => name)).toContain('sandbox_execute')
    await client.close()
  })
})
