import { describe, expect, it } from 'vitest'
import {
  corkedBytesIn,
  netlinkBytesIn,
  receivedBytesOf,
  socketsOf,
  unacceptedBytesIn,
} from '../../../src/engine/jails/socket-queues.ts'

describe('socket memory', () => {
  it('is summed over the netlink sockets of a namespace', () => {
    const text = `sk               Eth Pid        Groups   Rmem     Wmem     Dump  Locks    Drops    Inode
0000000050472b74 0   0          00000000 0        0        0     2        0        130675
000000007e76df83 0   4242       00000000 213248   4096     0     2        0        130676
`
    expect(netlinkBytesIn(text)).toBe(217_344)
  })

  it('is looked for where there are many sockets, of either version of IP', () => {
    const text =
      'sockets: used 12\nTCP: inuse 7 orphan 3 tw 1 alloc 9 mem 65\nUDP: inuse 5 mem 0\nUDPLITE: inuse 0\nRAW: inuse 0\n'
    const text6 = 'TCP6: inuse 94\nUDP6: inuse 50\nUDPLITE6: inuse 0\nRAW6: inuse 0\n'
    expect(socketsOf(text, text6)).toMatchObject({ udp: 5, udp6: 50, tcp: 7, tcp6: 94 })
    expect(socketsOf(text, '')).toMatchObject({ udp: 5, udp6: 0, tcp: 7, tcp6: 0 })
  })

  it('is looked for when enough was received on any interface', () => {
    const text = `Inter-|   Receive                                                |  Transmit
 face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls carrier compressed
    lo:  123456     100    0    0    0     0          0         0   123456     100    0    0    0     0       0          0
  tun0: 1000      10    0    0    0     0          0         0   7     1    0    0    0     0       0          0
`
    expect(receivedBytesOf(text)).toBe(124_456)
  })

  it('is summed over the queues of a listing', () => {
    const row = (at: number) =>
      `   ${at}: 0100007F:1F90 0100007F:A2D4 01 00000010:00000100 00:00000000 00000000  1000        0 0 1 0000000000000000\n`
    const head = '  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n'
    expect(corkedBytesIn(head + row(1) + row(2))).toBe(32)
  })

  it('is that of connections that were not accepted', () => {
    const row = (inode: number) =>
      `   7: 0000000000000000FFFF00000100007F:1F90 0000000000000000FFFF00000100007F:A2D4 01 00000000:00010000 00:00000000 00000000 100000        0 ${inode} 1 0000000000000000 20 4 0 10 -1\n`
    expect(unacceptedBytesIn(row(0) + row(4711))).toBe(64 * 1024 + 4 * 1024)
    const ended = row(0).replace(' 01 ', ' 06 ')
    expect(unacceptedBytesIn(ended + row(0))).toBe(64 * 1024 + 4 * 1024)
  })
})
