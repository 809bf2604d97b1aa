/**
 * Reports to the service manager that started this process when the server is ready, that it is alive, and that it stops:
 * https://www.freedesktop.org/software/systemd/man/latest/sd_notify.html
 */
import type { Log } from '../../observe/log.ts'
import type { ProcessIo } from '../process-io.ts'

export interface ServiceManager {
  /** The server accepts requests. */
  ready(): void
  /** The server ends its runs and then itself. */
  stopping(): void
  close(): void
}

/**
 * Connects to the service manager, and sends a heartbeat from now on if it expects one. A message that cannot be sent is
 * logged: the service manager then acts as if the server were silent.
 * @returns `undefined` when no service manager expects messages.
 */
export async function openServiceManager(env: ProcessIo['env'], log: Log): Promise<ServiceManager | undefined> {
  const socket = env.NOTIFY_SOCKET
  if (socket === undefined || socket === '') return undefined
  const { kernel } = await import('../../kernel/kernel.ts')
  const path = Buffer.from(socket)
  // One after another: READY must not overtake STOPPING.
  let sent = Promise.resolve()
  const send = (message: string) => {
    sent = sent
      .then(() => kernel.sendDatagram(path, Buffer.from(message)))
      .catch((error: unknown) => log.warn({ err: error, socket }, 'the service manager cannot be notified'))
  }
  const everyMs = heartbeatMsOf(env, process.pid)
  const timer = everyMs === undefined ? undefined : setInterval(() => send('WATCHDOG=1'), everyMs)
  return {
    ready: () => send('READY=1\nSTATUS=Serving'),
    stopping: () => send('STOPPING=1\nSTATUS=Ending runs'),
    close: () => clearInterval(timer),
  }
}

/** Half of the silence that the service manager allows, as it recommends; `undefined` if it expects no heartbeat. */
export function heartbeatMsOf({ WATCHDOG_USEC, WATCHDOG_PID }: ProcessIo['env'], pid: number): number | undefined {
  const allowedUs = Number(WATCHDOG_USEC)
  if (!Number.isSafeInteger(allowedUs) || allowedUs <= 0) return undefined
  if (WATCHDOG_PID !== undefined && WATCHDOG_PID !== `${pid}`) return undefined
  return Math.max(1, Math.floor(allowedUs / 2000))
}
