/**
 * The client of `network-pipe.ts`: prints one line of JSON with the rate of a transfer in MiB/s, the median of a round trip of
 * one byte and that of a new connection, both in ms. Arguments: host and port of the server, the port of a proxy or 0, and the bytes of the transfer.
 */
import { once } from 'node:events'
import { connect, type Socket } from 'node:net'

const [host = '', port = '', proxy = '0', bytes = '0'] = process.argv.slice(2)
const transferBytes = Number(bytes)
const rounds = 2_000
const connections = 200

async function open(): Promise<Socket> {
  const socket = connect(proxy === '0' ? { host, port: Number(port) } : { host: '127.0.0.1', port: Number(proxy) })
  socket.setNoDelay(true)
  await once(socket, 'connect')
  if (proxy === '0') return socket
  socket.write(`CONNECT ${host}:${port} HTTP/1.1\r\nHost: ${host}:${port}\r\n\r\n`)
  let head = ''
  while (!head.includes('\r\n\r\n')) head += String((await once(socket, 'data'))[0])
  if (!head.startsWith('HTTP/1.1 200') && !head.startsWith('HTTP/1.0 200')) throw new Error(head)
  return socket
}

const median = (values: number[]): number => values.toSorted((a, b) => a - b)[Math.floor(values.length / 2)] ?? 0

async function rate(): Promise<number> {
  const socket = await open()
  const startMs = performance.now()
  socket.write('d')
  let received = 0
  for await (const piece of socket) {
    received += (piece as Buffer).length
    if (received >= transferBytes) break
  }
  return received / 1024 / 1024 / ((performance.now() - startMs) / 1000)
}

async function roundTrip(): Promise<number> {
  const socket = await open()
  const took: number[] = []
  for (let i = 0; i < rounds; i++) {
    const startMs = performance.now()
    socket.write('e')
    await once(socket, 'data')
    took.push(performance.now() - startMs)
  }
  socket.destroy()
  return median(took)
}

async function newConnection(): Promise<number> {
  const took: number[] = []
  for (let i = 0; i < connections; i++) {
    const startMs = performance.now()
    const socket = await open()
    took.push(performance.now() - startMs)
    socket.destroy()
  }
  return median(took)
}

console.log(JSON.stringify({ rate: await rate(), roundTrip: await roundTrip(), connection: await newConnection() }))
process.exit(0)
