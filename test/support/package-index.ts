/** An index of small packages for pip and npm, at an address of this machine that runs reach through their network. */
import { execFileSync } from 'node:child_process'
import { createHash } from 'node:crypto'
import { once } from 'node:events'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { gzipSync } from 'node:zlib'
import { archive } from './archives.ts'
import { address } from './network-servers.ts'

export interface PackageIndex {
  /** The rule of a policy that reaches it. */
  rule: string
  /** Variables that make pip and npm use it. */
  env: Record<string, string>
  /** Paths that were requested. */
  requests: string[]
  /** Answers wait for it. */
  hold: Promise<void>
  close(): void
}

const wheel = `
import sys, zipfile
name, version, source = sys.argv[1:]
info = f'{name}-{version}.dist-info'
with zipfile.ZipFile(sys.stdout.buffer, 'w', zipfile.ZIP_DEFLATED) as wheel:
    wheel.writestr(f'{name}.py', source)
    if name == 'large':
        wheel.writestr('large.bin', bytes(100 * 1024 * 1024))
    wheel.writestr(f'{info}/METADATA', f'Metadata-Version: 2.1\\nName: {name}\\nVersion: {version}\\n')
    wheel.writestr(f'{info}/WHEEL', 'Wheel-Version: 1.0\\nGenerator: test\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n')
    wheel.writestr(f'{info}/entry_points.txt', f'[console_scripts]\\nsay-{name} = {name}:main\\n')
    wheel.writestr(f'{info}/RECORD', '')
`

/** Starts the index: for Python `greeting` in two versions, `parting`, and `large` with 100 MiB; for Node.js `greeting-node`, which needs `words-node`. */
export async function openPackageIndex(): Promise<PackageIndex> {
  const wheels = new Map<string, Buffer>()
  for (const [name, version] of [
    ['greeting', '1.0'],
    ['greeting', '2.0'],
    ['parting', '1.0'],
    ['large', '1.0'],
  ] as const) {
    const source = `version = '${version}'\ndef main():\n    print('${name}', version)\n`
    wheels.set(`${name}-${version}-py3-none-any.whl`, execFileSync('python3', ['-c', wheel, name, version, source]))
  }
  const tarballs = new Map([
    ['greeting-node', npmPackage('greeting-node', "require('words-node').hello", { 'words-node': '^1.0.0' })],
    ['words-node', npmPackage('words-node', "{ hello: 'hello from npm' }", {})],
  ])
  const server = createServer(async (request, response) => {
    const path = decodeURIComponent(request.url ?? '')
    index.requests.push(path)
    await index.hold
    const [, simple] = /^\/simple\/([^/]+)\/$/.exec(path) ?? []
    const name = path.split('/')[1] ?? ''
    const file = wheels.get(path.slice('/files/'.length))
    const tarball = tarballs.get(name)
    if (simple !== undefined) {
      const own = [...wheels].filter(([file]) => file.startsWith(`${simple}-`))
      response.statusCode = own.length > 0 ? 200 : 404
      response.setHeader('content-type', 'text/html')
      const links = own.map(
        ([file, bytes]) => `<a href="/files/${file}#sha256=${digestOf('sha256', bytes)}">${file}</a>`,
      )
      response.end(`<!DOCTYPE html><html><body>${links.join('\n')}</body></html>`)
    } else if (file) response.end(file)
    else if (tarball && path.endsWith('.tgz')) response.end(tarball.bytes)
    else if (tarball) {
      const { port } = server.address() as AddressInfo
      const dist = {
        tarball: `http://${address}:${port}/${name}/-/${name}-1.0.0.tgz`,
        integrity: `sha512-${createHash('sha512').update(tarball.bytes).digest('base64')}`,
      }
      response.setHeader('content-type', 'application/json')
      const versions = { '1.0.0': { ...tarball.manifest, dist } }
      response.end(JSON.stringify({ name, 'dist-tags': { latest: '1.0.0' }, versions }))
    } else {
      response.statusCode = 404
      response.end('{}')
    }
  })
  server.listen(0, address)
  await once(server, 'listening')
  const { port } = server.address() as AddressInfo
  const index: PackageIndex = {
    rule: `${address}/32:${port}`,
    env: {
      PIP_INDEX_URL: `http://${address}:${port}/simple`,
      PIP_TRUSTED_HOST: address,
      npm_config_registry: `http://${address}:${port}/`,
    },
    requests: [],
    hold: Promise.resolve(),
    close: () => {
      server.close()
      server.closeAllConnections()
    },
  }
  return index
}

function npmPackage(name: string, exported: string, dependencies: Record<string, string>) {
  const manifest = { name, version: '1.0.0', main: 'index.js', bin: { [`say-${name}`]: 'say.js' }, dependencies }
  const bytes = gzipSync(
    archive(
      { name: 'package/package.json', content: JSON.stringify(manifest) },
      { name: 'package/index.js', content: `module.exports = ${exported}\n` },
      { name: 'package/say.js', content: "#!/usr/bin/env node\nconsole.log(require('./index.js'))\n", mode: 0o755 },
    ),
  )
  return { manifest, bytes }
}

const digestOf = (algorithm: string, bytes: Buffer): string => createHash(algorithm).update(bytes).digest('hex')
