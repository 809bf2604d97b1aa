import { chmod, mkdir, rmdir } from 'node:fs/promises'
import { mountDevices, unmountLazily } from '../mounts.ts'

/**
 * Makes device nodes for a slot while it is started, so that locks and watches on them are not shared with the machine or
 * with other slots. The slot binds the nodes and keeps them.
 * @param dir does not exist yet, and does not exist afterwards.
 * @param start starts the slot.
 * @throws StartRefused when the nodes cannot be mounted; what `start` throws.
 */
export async function withSlotDevices<T>(dir: string, start: () => Promise<T>): Promise<T> {
  await mkdir(dir)
  try {
    await chmod(dir, 0o755) // Whatever the umask: the runtime looks for the nodes as the ids of the slot.
    await mountDevices(dir)
    try {
      return await start()
    } finally {
      await unmountLazily(dir)
    }
  } finally {
    await rmdir(dir)
  }
}
