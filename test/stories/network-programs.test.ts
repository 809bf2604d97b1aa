/** Ordinary programs through the network of a run: package managers that build what they install, git, HTTP/2, gRPC, Java. */
import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { type Execution, execute } from '../support/calls.ts'
import type { Glovebox } from '../support/glovebox.ts'
import { indexesOfThisMachine, printed } from '../support/machine-network.ts'
import { address, type NetworkServers, startNetworkServers } from '../support/network-servers.ts'
import { disposablePlaces } from '../support/story.ts'

const machine = await indexesOfThisMachine()
const place = disposablePlaces()
let server: Glovebox
let servers: NetworkServers

beforeAll(async () => {
  const here = place()
  servers = await startNetworkServers(here.directory)
  const file = join(here.directory, 'glovebox.yaml')
  const allow = JSON.stringify([
    ...machine.rules,
    ...Object.values(servers.ports).map((port) => `${address}/32:${port}`),
  ])
  const limits = 'limit_memory: 1536MiB\nlimit_home: 1GiB\nlimit_open_files: 4096\n'
  writeFileSync(file, `network: allow\nnetwork_allow: ${allow}\n${limits}`)
  server = await here.start('--dev', '--config', file)
})
afterAll(() => servers.close())

const run = (language: string, code: string, more: object = {}): Promise<Execution> =>
  execute(server.url, language, code, { timeout: 280, ...more })

/** Expects a program to succeed. @returns what it printed. */
async function printedBy(language: string, code: string, more: object = {}): Promise<string> {
  const { exit_code, stdout, stderr } = await run(language, code, more)
  if (exit_code !== 0) throw new Error(`${stdout}\n${stderr}`)
  return stdout ?? ''
}

const registryTitle = machine.isReached ? 'packages of a registry' : 'packages of a registry (no package registry)'

describe.concurrent(registryTitle, { timeout: 300_000 }, () => {
  const withRegistry = it.skipIf(!machine.isReached)

  withRegistry('are installed by pip, with native code as a wheel, and numpy computes in the next call', async () => {
    const thread = { thread_id: 'numpy' }
    await printedBy('bash', 'python3 -m pip install -q --no-cache-dir --target lib numpy', thread)
    const code =
      'import sys; sys.path.insert(0, "lib"); import numpy; print(numpy.__file__[-22:], numpy.arange(5).sum())'
    expect(await printedBy('python', code, thread)).toBe('/lib/numpy/__init__.py 10\n')
  })

  const buildsForPython = printed('gcc', '--version') !== '' && printed('/usr/bin/python3-config', '--includes') !== ''
  it.skipIf(!machine.isReached || !buildsForPython)('are built by pip from their source distribution', async () => {
    const code = `
      python3 -m pip install -q --no-cache-dir --no-binary markupsafe --target lib markupsafe &&
      ls lib/markupsafe/*.so && PYTHONPATH=lib python3 -c 'import markupsafe._speedups; print(markupsafe.escape("<"))'`
    expect(await printedBy('bash', code)).toMatch(/_speedups\..*so\n&lt;\n$/)
  })

  it.skipIf(!machine.isReached || printed('gcc', '--version') === '')(
    'are installed by npm with their scripts, which build a native addon against headers of another package',
    async () => {
      const code = `
mkdir addon && cd addon && cat >package.json <<'END'
{ "name": "addon", "version": "1.0.0", "dependencies": { "node-api-headers": "*" }, "scripts": {
  "install": "gcc -shared -fPIC -Inode_modules/node-api-headers/include -o addon.node addon.c" } }
END
cat >addon.c <<'END'
#include <node_api.h>
NAPI_MODULE_INIT() {
  napi_value answer;
  napi_create_int32(env, 42, &answer);
  return answer;
}
END
npm install --silent >/dev/null && node -p 'require("./addon.node")'`
      expect(await printedBy('bash', code)).toBe('42\n')
    },
  )

  withRegistry('give a gRPC client for Python and one for Node.js, which call a server', async () => {
    const target = `${address}:${servers.ports.grpc}`
    const python = `
import subprocess, sys
subprocess.run([sys.executable, '-m', 'pip', 'install', '-q', '--no-cache-dir', '--target', 'lib', 'grpcio'], check=True)
sys.path.insert(0, 'lib')
import grpc
call = grpc.insecure_channel('${target}').unary_unary('/test.Echo/Say')
print(call(b'said by Python', timeout=30).decode())`
    const node = `
require('node:child_process').execSync('npm install --silent @grpc/grpc-js')
const grpc = require(process.cwd() + '/node_modules/@grpc/grpc-js')
const client = new grpc.Client('${target}', grpc.credentials.createInsecure())
const same = (bytes) => bytes
client.makeUnaryRequest('/test.Echo/Say', same, same, Buffer.from('said by Node.js'), (error, answer) => {
  console.log(error ?? answer.toString())
  client.close()
})`
    const printedByBoth = await Promise.all([printedBy('python', python), printedBy('node', node)])
    expect(printedByBoth).toEqual(['said by Python\n', 'said by Node.js\n'])
  })

  it.skipIf(!machine.isReached || printed('javac', '-version') === '')(
    'are reached by the HTTP client of Java, which knows no proxy',
    async () => {
      const code = `
cat >Get.java <<'END'
import java.net.URI;
import java.net.http.*;
class Get {
  public static void main(String[] words) throws Exception {
    var request = HttpRequest.newBuilder(URI.create(words[0])).build();
    var answer = HttpClient.newHttpClient().send(request, HttpResponse.BodyHandlers.ofString());
    System.out.println(answer.statusCode() + " " + answer.body().contains("is-odd"));
  }
}
END
java -Xmx256m Get.java ${machine.npmIndex}is-odd`
      expect(await printedBy('bash', code)).toBe('200 true\n')
    },
  )
})

describe('a server that the policy names by its network', () => {
  it('is cloned from by git, over HTTP and HTTPS', async () => {
    for (const [scheme, port] of [
      ['http', servers.ports.web],
      ['https', servers.ports.secureWeb],
    ] as const) {
      const url = `${scheme}://${address}:${port}/example.git`
      const code = `cat >ca.pem <<'END'\n${servers.certificate}END\nGIT_SSL_CAINFO=$PWD/ca.pem git clone -q ${url} && git -C example log --format=%s`
      expect(await printedBy('bash', code)).toBe('cloned through the network\n')
    }
  })

  it('speaks HTTP/2 with curl', async () => {
    const url = `https://${address}:${servers.ports.http2}/`
    const code = `cat >ca.pem <<'END'\n${servers.certificate}END\ncurl -sS --cacert ca.pem --http2 ${url}`
    expect(await printedBy('bash', code)).toBe('HTTP/2.0')
  })

  it('has 2,000 connections of one run at once, each of which keeps its ends apart', async () => {
    const code = `
import asyncio, resource
resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
target = '${address}:${servers.ports.tcp}'
async def open_one(number):
    reader, writer = await asyncio.open_connection('127.0.0.1', 3128)
    writer.write(f'CONNECT {target} HTTP/1.1\\r\\nHost: {target}\\r\\n\\r\\n'.encode())
    assert b' 200 ' in await reader.readuntil(b'\\r\\n\\r\\n')
    return number, reader, writer
async def finish(number, reader, writer):
    writer.write(b'%d' % number)
    writer.write_eof()
    return await reader.read() == b'%d' % number
async def main():
    opened = []
    for first in range(0, 2000, 100):
        opened += await asyncio.gather(*(open_one(first + n) for n in range(100)))
    print(len(opened), all(await asyncio.gather(*(finish(*one) for one in opened))))
asyncio.run(main())`
    expect(await printedBy('python', code)).toBe('2000 True\n')
  })
})
