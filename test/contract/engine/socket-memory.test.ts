import { describe, expect, it } from 'vitest'
import { countsOf, netlinkBytes, queuedBytes } from '../../../src/engine/jails/socket-queues.ts'

describe('socket memory', () => {
  it('is summed over the netlink sockets of a namespace', () => {
    const text = `sk               Eth Pid        Groups   Rmem     Wmem     Dump  Locks    Drops    Inode
0000000050472b74 0   0          00000000 0        0        0     2        0        130675
000000007e76df83 0   4242       00000000 213248   4096     0     2        0        130676
`
    expect(netlinkBytes(text)).toBe(217_344)
  })

  it('is looked for where there are many sockets', () => {
    const text =
      'sockets: used 12\nTCP: inuse 7 orphan 3 tw 1 alloc 9 mem 65\nUDP: inuse 5 mem 0\nUDPLITE: inuse 0\nRAW: inuse 0\n'
    expect(countsOf(text)).toEqual({ udp: 5, tcp: 10 })
  })

  it('is summed over the queues of a listing, also of one that was cut', () => {
    const row = (at: number) =>
      `   ${at}: 0100007F:1F90 0100007F:A2D4 01 00000010:00000100 00:00000000 00000000  1000        0 0 1 0000000000000000\n`
    const head = '  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n'
    expect(queuedBytes(head + row(1) + row(2), 2, ({ queuedBytes }) => queuedBytes)).toBe(544)
    const rows = Array.from({ length: 3_000 }, (_, at) => row(at)).join('')
    const cut = (head + rows).slice(0, 256 * 1024)
    expect(queuedBytes(cut, 3_000, ({ queuedBytes }) => queuedBytes)).toBeCloseTo(3_000 * 272, -4)
  })
})
