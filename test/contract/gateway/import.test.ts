import { describe, expect, it } from 'vitest'
import { importServers } from '../../../src/gateway/import.ts'

describe('programs in the configuration of a client', () => {
  it('are imported with their arguments and variables', () => {
    const mcpServers = {
      memory: { command: 'npx', args: ['-y', 'server-memory'], env: { MEMORY_FILE_PATH: '/workspace/m' } },
      list: { type: 'local', command: ['uvx', 'server-time'], environment: { TZ: 'UTC' } },
    }
    expect(importServers({ mcpServers }, 'team')).toEqual({
      servers: [
        {
          ...{ name: 'team/memory', transport: 'stdio', env: { MEMORY_FILE_PATH: '/workspace/m' } },
          program: { command: 'npx', args: ['-y', 'server-memory'] },
        },
        {
          ...{ name: 'team/list', transport: 'stdio', env: { TZ: 'UTC' } },
          program: { command: 'uvx', args: ['server-time'] },
        },
      ],
      skipped: [],
    })
  })

  it.each([
    [{ command: '/usr/bin/docker', args: ['run', 'x'] }, 'its command is /usr/bin/docker'],
    [{ command: 'npx', args: ['x', '--key', `\${input:key}`] }, 'its argument 3 is a placeholder'],
    [{ command: 'npx', args: ['x', 7] }, 'its argument 2 is a placeholder'],
    [{ command: 'npx', env: { KEY: `\${KEY}` } }, 'the value of its variable KEY is a placeholder'],
    [{ command: {} }, 'it has no address and no command'],
    [{}, 'it has no address and no command'],
  ])('%j are skipped with the reason', (entry, reason) => {
    const { servers, skipped } = importServers({ mcpServers: { odd: entry } }, 'team')
    expect(servers).toEqual([])
    expect(skipped).toEqual([{ name: 'team/odd', reason: expect.stringContaining(reason) }])
  })
})

describe('packages in a server.json of the registry', () => {
  const npm = {
    ...{ registryType: 'npm', identifier: '@acme/server', version: '1.2.3', transport: { type: 'stdio' } },
    runtimeArguments: [{ type: 'named', name: '--no-fund' }],
    packageArguments: [
      { type: 'positional', value: '/workspace' },
      { type: 'named', name: '--mode', default: 'read' },
    ],
    environmentVariables: [
      { name: 'REGION', default: 'eu' },
      { name: 'KEY', isSecret: true },
    ],
  }
  const imported = (packages: object[], more: object = {}) =>
    importServers({ name: 'io.github.acme/server', description: 'Does it.', packages, ...more }, 'team')

  it('are started by the runner of their registry, with their exact version', () => {
    expect(imported([{ registryType: 'oci', identifier: 'acme/server' }, npm]).servers).toEqual([
      {
        ...{ name: 'io.github.acme/server', transport: 'stdio', description: 'Does it.', env: { REGION: 'eu' } },
        program: {
          command: 'npx',
          args: ['--no-fund', '-y', '@acme/server@1.2.3', '/workspace', '--mode', 'read'],
        },
      },
    ])
    const pypi = { registryType: 'pypi', identifier: 'acme-server', version: '2.0' }
    expect(imported([pypi]).servers).toMatchObject([{ program: { command: 'uvx', args: ['acme-server@2.0'] } }])
  })

  it('are used only if the server has no remote', () => {
    const remotes = [{ type: 'streamable-http', url: 'https://mcp.example.com/' }]
    expect(imported([npm], { remotes }).servers).toMatchObject([{ transport: 'http', url: 'https://mcp.example.com/' }])
  })

  it('of other kinds are skipped', () => {
    const http = { ...npm, transport: { type: 'streamable-http', url: 'http://127.0.0.1:3000' } }
    expect(imported([{ registryType: 'oci', identifier: 'x' }, http]).skipped).toHaveLength(1)
  })
})
