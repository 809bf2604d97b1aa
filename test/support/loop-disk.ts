/** A filesystem of its own for the home of a server, which a test can fill, make read-only, break, and cut the power of. */
import { execFileSync } from 'node:child_process'
import { mkdirSync, mkdtempSync, rmSync, statfsSync, truncateSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { type Glovebox, killIfThere, type Place, until } from './glovebox.ts'

const run = (program: string, ...args: string[]): string =>
  execFileSync(program, args, { encoding: 'utf8', stdio: ['ignore', 'pipe', 'pipe'] })

/**
 * FS_IOC_SHUTDOWN without flushing: from now on nothing more reaches the device, and every access fails with EIO.
 * https://www.kernel.org/doc/html/latest/filesystems/ext4/ and fs/ext4/ioctl.c, ext4_force_shutdown
 */
const shutdown = 'import fcntl, os, struct, sys; fcntl.ioctl(os.open(sys.argv[1], 0), 0x8004587d, struct.pack("I", 2))'

/** In memory, where a sync takes no time however busy the disks of the machine are, if there is enough of it. */
function directoryFor(bytes: number): string {
  const { bavail, bsize } = statfsSync('/dev/shm')
  return bavail * bsize > 2 * bytes ? '/dev/shm' : tmpdir()
}

/** Must be used in a mount namespace of the test: another one that copied the mount would keep the disk in use. */
export class LoopDisk {
  /** The mount point, which is the home of the servers in the place. */
  readonly home: string
  readonly #directory: string
  readonly #image: string

  /** Creates and mounts it. @param options of mkfs.ext4. */
  constructor(place: Place, bytes: number, ...options: string[]) {
    this.home = join(place.directory, 'home')
    this.#directory = mkdtempSync(join(directoryFor(bytes), 'gb-disk-'))
    this.#image = join(this.#directory, 'disk.img')
    mkdirSync(this.home)
    writeFileSync(this.#image, '')
    truncateSync(this.#image, bytes)
    run('mkfs.ext4', '-q', '-F', '-m', '0', ...options, this.#image)
    this.mount()
  }

  mount(): void {
    run('mount', '-o', 'loop', this.#image, this.home)
  }

  remount(how: 'ro' | 'rw'): void {
    run('mount', '-o', `remount,${how}`, this.home)
  }

  /** Waits until no process and no loop device uses it. */
  async unmount(): Promise<void> {
    const isUnmounted = () => {
      try {
        run('umount', this.home)
        return true
      } catch {
        return false
      }
    }
    await until(isUnmounted, 'the disk is no longer in use')
    await until(() => run('losetup', '--associated', this.#image) === '', 'its loop device is gone')
  }

  /** Removes it; it must be unmounted. */
  remove(): void {
    rmSync(this.#directory, { recursive: true })
  }

  /** From now on every access fails with EIO, as on a disk that is broken. */
  break(): void {
    run('python3', '-c', shutdown, this.home)
  }

  /**
   * Cuts the power: what has not reached the disk is lost, and every process of the server ends. What has reached it is
   * mounted again, as after a boot.
   */
  async cutPower(server: Glovebox): Promise<void> {
    const pids = [server.supervisorPid, server.frontPid, server.runnerPid]
    this.break()
    // Stopped first, so that no process sees another one die.
    for (const pid of pids) process.kill(pid, 'SIGSTOP')
    for (const pid of pids) killIfThere(pid)
    await server.exited
    await this.unmount()
    this.mount()
  }
}
