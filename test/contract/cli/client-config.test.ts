import { mkdtempSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, describe, expect, it } from 'vitest'
import { parse } from 'yaml'
import { mergedText } from '../../../src/cli/client-file.ts'
import { runProgram } from '../../../src/cli/program.ts'
import { mcpClientNames } from '../../../src/gateway/client-config.ts'
import { withCommandIo } from '../../support/command-io.ts'

const directory = mkdtempSync(join(tmpdir(), 'glovebox-clients-'))
afterAll(() => rmSync(directory, { recursive: true, force: true }))

const endpoint = { name: 'glovebox', url: 'https://box.example.com/mcp', key: 'sk-us-secret-key' }

const config = (...words: string[]) =>
  withCommandIo((io) => runProgram(['config', ...words, '--url', 'https://box.example.com'], io), {
    env: { GLOVEBOX_KEY: endpoint.key, HOME: directory },
  })

describe('the file of a client', () => {
  it('keeps everything else in JSON, and its indentation', () => {
    const before = '{\n\t"theme": "dark",\n\t"mcpServers": {\n\t\t"other": { "url": "x" }\n\t}\n}\n'
    const after = mergedText('cursor', before, endpoint)
    expect(JSON.parse(after)).toEqual({
      theme: 'dark',
      mcpServers: {
        other: { url: 'x' },
        glovebox: { url: endpoint.url, headers: { Authorization: `Bearer ${endpoint.key}` } },
      },
    })
    expect(after).toContain('\n\t"theme"')
    expect(mergedText('cursor', after, endpoint)).toBe(after)
  })

  it('keeps comments and other servers in YAML, and replaces its own entry', () => {
    const before = '# mine\nextensions:\n  other: # keep\n    uri: x\n  glovebox:\n    uri: old\n'
    const after = mergedText('goose', before, endpoint)
    expect(after).toMatch(/^# mine\nextensions:\s+other:\s+# keep\n/)
    expect(parse(after).extensions).toMatchObject({ other: { uri: 'x' }, glovebox: { uri: endpoint.url } })
    const list = mergedText('continue', 'mcpServers:\n  - name: other\n  - name: glovebox\n    url: old\n', endpoint)
    expect(parse(list).mcpServers).toMatchObject([{ name: 'other' }, { name: 'glovebox', url: endpoint.url }])
  })

  it('keeps the lines of others in YAML as they are, and adds what a new file must have', () => {
    const long = `${'words '.repeat(40)}end`
    const before = `name: mine\nroles: [a, b]\nlong: ${long}\n`
    expect(mergedText('continue', before, endpoint)).toMatch(`${before}version: 1.0.0\nschema: v1\nmcpServers:`)
    expect(mergedText('goose', 'a: [ b, c ]\n', endpoint)).toMatch('a: [ b, c ]\nextensions:')
    expect(parse(mergedText('librechat', 'version: 1.2.8\n', endpoint)).version).toBe('1.2.8')
  })

  it('keeps other servers of a list in JSON, and replaces its own', () => {
    const other = { type: 'openapi', url: 'x', info: { id: 'other' } }
    const before = JSON.stringify({ TOOL_SERVER_CONNECTIONS: [{ url: 'old', info: { id: 'glovebox' } }, other] })
    const { TOOL_SERVER_CONNECTIONS: list } = JSON.parse(mergedText('open-webui', before, endpoint))
    expect(list).toMatchObject([other, { url: endpoint.url, info: { id: 'glovebox' } }])
  })

  it('keeps other tables in TOML, and replaces its own', () => {
    const before = 'model = "x"\n\n[mcp_servers.glovebox]\nurl = "old"\n\n[mcp_servers.other]\ncommand = "y"\n'
    const after = mergedText('codex', before, endpoint)
    expect(after).toBe(
      'model = "x"\n\n[mcp_servers."glovebox"]\nurl = "https://box.example.com/mcp"\n' +
        'http_headers = { Authorization = "Bearer sk-us-secret-key" }\n\n[mcp_servers.other]\ncommand = "y"\n',
    )
    expect(mergedText('codex', after, endpoint)).toBe(after)
  })

  it.each(mcpClientNames)('of %s is the same after a second merge', (client) => {
    const once = mergedText(client, '', endpoint)
    expect(mergedText(client, once, endpoint)).toBe(once)
  })

  it('is not changed where it cannot be read as the client reads it', () => {
    expect(() => mergedText('vscode', '{\n // comment\n "servers": {} }', endpoint)).toThrow('not plain JSON')
    expect(() => mergedText('cursor', '[]', endpoint)).toThrow('not an object')
    expect(() => mergedText('goose', 'a: [', endpoint)).toThrow('by hand')
  })
})

describe('glovebox config CLIENT', () => {
  it('prints the entry, and changes no file without --write', async () => {
    const { stdout, code } = await config('claude-code', '--all')
    expect(code).toBe(0)
    expect(JSON.parse(stdout.toString()).mcpServers.glovebox.url).toBe('https://box.example.com/v1/mcp')
    const upstream = await config('gemini', '--upstream', 'exa/exa')
    expect(JSON.parse(upstream.stdout.toString()).mcpServers.exa.httpUrl).toBe('https://box.example.com/exa/exa/sse')
  })

  it('shows what it changes without the key, writes it for its owner only, and then has nothing to change', async () => {
    const first = await config('windsurf', '--write')
    const file = join(directory, '.codeium/windsurf/mcp_config.json')
    expect(first.stdout.toString()).toMatch(/^\+ .*"serverUrl": "https:\/\/box.example.com\/mcp"/m)
    expect(first.stdout.toString()).not.toContain(endpoint.key)
    expect(readFileSync(file, 'utf8')).toContain(endpoint.key)
    expect(statSync(file).mode & 0o777).toBe(0o600)
    expect((await config('windsurf', '--write')).stderr).toContain('has this entry already')
  })

  it('shows only the entry that differs, and keeps the mode of the file', async () => {
    const file = join(directory, 'settings.json')
    writeFileSync(file, '{\n  "a": 1,\n  "mcpServers": {\n    "x": {}\n  }\n}\n', { mode: 0o640 })
    const { stdout } = await config('cline', '--write', '--file', file)
    expect(stdout.toString()).toMatch(/^\+ .*"glovebox"/m)
    expect(stdout.toString()).not.toMatch(/^[-+] .*"a"/m)
    expect(statSync(file).mode & 0o777).toBe(0o640)
  })

  it('refuses clients that it does not know or whose file it cannot find', async () => {
    expect(await config('notepad')).toMatchObject({ code: 64, stderr: expect.stringContaining('known are claude') })
    expect(await config('open-webui', '--write')).toMatchObject({ code: 64, stderr: expect.stringContaining('--file') })
  })
})
