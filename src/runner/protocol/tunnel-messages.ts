/** The messages about connections to servers in sandboxes, on the socket between front and runner. */

import type { FromRunner, ToRunner } from './messages.ts'

/** Bytes that may be on their way in one direction of a tunnel before the receiver has said that it took some. */
export const tunnelWindowBytes = 256 * 1024
/** Largest piece in one message. */
export const tunnelPieceBytes = 64 * 1024

/** From the front. `tunnel` is the number of the request that opened it. */
export type ToTunnels =
  /** Connects to a port on the loopback of a sandbox. Answered `ok`, or refused; then bytes flow both ways. */
  | { type: 'tunnel_open'; request: number; sandboxId: string; port: number }
  /** Payload: the bytes. */
  | { type: 'tunnel_send'; tunnel: number }
  /** The front took so many bytes. */
  | { type: 'tunnel_more'; tunnel: number; bytes: number }
  /** The front sends nothing more, and still reads. */
  | { type: 'tunnel_finish'; tunnel: number }
  | { type: 'tunnel_close'; tunnel: number }

/** From the runner, with the number of the request that opened the tunnel. */
export type FromTunnels =
  /** Payload: the bytes. */
  | { type: 'tunnel_bytes'; request: number }
  /** The server took so many bytes. */
  | { type: 'tunnel_room'; request: number; bytes: number }
  /** The server sends nothing more, and may still read. */
  | { type: 'tunnel_end'; request: number }
  | { type: 'tunnel_closed'; request: number }

export const isOfTunnel = (message: FromRunner): message is FromTunnels => message.type.startsWith('tunnel_')
export const isToTunnel = (message: ToRunner): message is ToTunnels => message.type.startsWith('tunnel_')
