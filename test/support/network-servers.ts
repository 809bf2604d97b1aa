/** Servers at an address of this machine that programs reach through the network of a run: 127.0.0.2. */
import { execFileSync, spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdirSync, readFileSync } from 'node:fs'
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http'
import { createServer as createHttp2Server, createSecureServer, type ServerHttp2Stream } from 'node:http2'
import { createServer as createHttpsServer } from 'node:https'
import { type AddressInfo, createServer as createTcpServer, type Server as TcpServer } from 'node:net'
import { join } from 'node:path'

/** Not in NO_PROXY, and not the loopback of a run. */
export const address = '127.0.0.2'

export interface NetworkServers {
  ports: Record<'web' | 'secureWeb' | 'http2' | 'grpc' | 'tcp', number>
  /** In PEM: the authority of the certificates. */
  certificate: string
  close(): void
}

/** Starts them. @param directory for a repository and for certificates. */
export async function startNetworkServers(directory: string): Promise<NetworkServers> {
  const { key, cert } = makeCertificate(directory)
  const project = makeRepository(directory)
  const git = (request: IncomingMessage, response: ServerResponse) => serveGit(project, request, response)
  const servers = {
    web: createServer(git),
    secureWeb: createHttpsServer({ key, cert }, git),
    http2: createSecureServer({ key, cert }, (request, response) => response.end(`HTTP/${request.httpVersion}`)),
    grpc: createHttp2Server(),
    tcp: createTcpServer({ allowHalfOpen: true }, (socket) => {
      socket.on('error', () => socket.destroy())
      socket.pipe(socket)
    }),
  }
  servers.grpc.on('stream', answerGrpc)
  const ports = Object.entries(servers).map(async ([name, server]) => [name, await listen(server)] as const)
  return {
    ports: Object.fromEntries(await Promise.all(ports)) as NetworkServers['ports'],
    certificate: cert,
    close: () => {
      for (const server of Object.values(servers)) {
        server.close()
        if ('closeAllConnections' in server) (server as Server).closeAllConnections()
      }
    },
  }
}

async function listen(server: TcpServer): Promise<number> {
  server.listen(0, address, 4096)
  await once(server, 'listening')
  return (server.address() as AddressInfo).port
}

function makeCertificate(directory: string): { key: string; cert: string } {
  const [keyFile, certFile] = [join(directory, 'server.key'), join(directory, 'server.crt')]
  const names = `subjectAltName=IP:${address}`
  const words = ['req', '-x509', '-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:P-256', '-nodes', '-days', '2']
  execFileSync('openssl', [...words, '-subj', '/CN=test', '-addext', names, '-keyout', keyFile, '-out', certFile], {
    stdio: 'ignore',
  })
  return { key: readFileSync(keyFile, 'utf8'), cert: readFileSync(certFile, 'utf8') }
}

/** @returns the directory that has the repository `example.git`. */
function makeRepository(directory: string): string {
  const project = join(directory, 'git')
  mkdirSync(project)
  const author = ['-c', 'user.name=test', '-c', 'user.email=test@example.com']
  const git = (...words: string[]) => execFileSync('git', words, { cwd: join(project, 'example.git') })
  execFileSync('git', ['init', '-q', join(project, 'example.git')])
  git(...author, 'commit', '-q', '--allow-empty', '-m', 'cloned through the network')
  return project
}

/** Answers as `git http-backend` does. */
function serveGit(project: string, request: IncomingMessage, response: ServerResponse): void {
  const { pathname, search } = new URL(request.url ?? '/', 'http://localhost')
  const backend = spawn('git', ['http-backend'], {
    env: {
      ...{ PATH: process.env.PATH, GIT_PROJECT_ROOT: project, GIT_HTTP_EXPORT_ALL: '1', PATH_INFO: pathname },
      ...{ QUERY_STRING: search.slice(1), REQUEST_METHOD: request.method, REMOTE_ADDR: address },
      ...{ CONTENT_TYPE: request.headers['content-type'], HTTP_CONTENT_ENCODING: request.headers['content-encoding'] },
      // The repository belongs to whoever runs the tests.
      ...{ GIT_CONFIG_COUNT: '1', GIT_CONFIG_KEY_0: 'safe.directory', GIT_CONFIG_VALUE_0: '*' },
    },
    stdio: ['pipe', 'pipe', 'ignore'],
  })
  request.pipe(backend.stdin)
  backend.stdin.on('error', () => undefined)
  const pieces: Buffer[] = []
  backend.stdout.on('data', (piece: Buffer) => pieces.push(piece))
  backend.once('close', () => {
    const all = Buffer.concat(pieces)
    const end = all.indexOf('\r\n\r\n')
    const headers = all.toString('latin1', 0, end).split('\r\n')
    const status = headers.find((line) => /^status:/i.test(line))?.slice(8, 11) ?? '200'
    response.writeHead(Number(status), headers.filter((line) => !/^status:/i.test(line)).flatMap(toPair))
    response.end(all.subarray(end + 4))
  })
}

const toPair = (line: string): string[] => {
  const at = line.indexOf(':')
  return [line.slice(0, at), line.slice(at + 1).trim()]
}

/** Returns each message of a call to `/test.Echo/Say` as it came: https://grpc.github.io/grpc/core/md_doc__p_r_o_t_o_c_o_l-_h_t_t_p2.html */
function answerGrpc(stream: ServerHttp2Stream): void {
  stream.on('error', () => undefined)
  stream.respond({ ':status': 200, 'content-type': 'application/grpc' }, { waitForTrailers: true })
  stream.once('wantTrailers', () => stream.sendTrailers({ 'grpc-status': '0' }))
  stream.pipe(stream)
}
