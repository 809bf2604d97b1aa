/** A filesystem of its own for the home of a server, which a test can fill, make read-only and break. */
import { execFileSync } from 'node:child_process'
import { appendFileSync, mkdirSync, mkdtempSync, rmSync, statfsSync, truncateSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { type Place, until } from './glovebox.ts'

export const runProgram = (program: string, ...args: string[]): string =>
  execFileSync(program, args, { encoding: 'utf8', stdio: ['ignore', 'pipe', 'pipe'] })

/**
 * FS_IOC_SHUTDOWN without flushing: from now on nothing more reaches the device, and every access fails with EIO.
 * https://www.kernel.org/doc/html/latest/filesystems/ext4/ and fs/ext4/ioctl.c, ext4_force_shutdown
 */
const shutdown = 'import fcntl, os, struct, sys; fcntl.ioctl(os.open(sys.argv[1], 0), 0x8004587d, struct.pack("I", 2))'

/** In memory, where a sync takes no time however busy the disks of the machine are, if there is enough of it. */
export function directoryFor(bytes: number): string {
  const { bavail, bsize } = statfsSync('/dev/shm')
  return bavail * bsize > 2 * bytes ? '/dev/shm' : tmpdir()
}

/** An image that is mounted on a loop device. */
export class LoopMount {
  readonly #image: string
  readonly #target: string

  constructor(image: string, target: string) {
    this.#image = image
    this.#target = target
  }

  mount(): void {
    runProgram('mount', '-o', 'loop', this.#image, this.#target)
  }

  /** Waits until no process and no loop device uses it. */
  async unmount(): Promise<void> {
    const isUnmounted = () => {
      try {
        runProgram('umount', this.#target)
        return true
      } catch {
        return false
      }
    }
    await until(isUnmounted, 'the disk is no longer in use')
    await until(() => runProgram('losetup', '--associated', this.#image) === '', 'its loop device is gone')
  }
}

/** Must be used in a mount namespace of the test: another one that copied the mount would keep the disk in use. */
export class LoopDisk {
  /** The mount point, which is the home of the servers in the place. */
  readonly home: string
  readonly #directory: string
  readonly #image: string
  readonly #mount: LoopMount
  #fills = 0

  /** Creates and mounts it. @param options of mkfs.ext4. */
  constructor(place: Place, bytes: number, ...options: string[]) {
    this.home = join(place.directory, 'home')
    this.#directory = mkdtempSync(join(directoryFor(bytes), 'gb-disk-'))
    this.#image = join(this.#directory, 'disk.img')
    this.#mount = new LoopMount(this.#image, this.home)
    mkdirSync(this.home)
    writeFileSync(this.#image, '')
    truncateSync(this.#image, bytes)
    runProgram('mkfs.ext4', '-q', '-F', '-m', '0', ...options, this.#image)
    this.mount()
  }

  mount(): void {
    this.#mount.mount()
  }

  remount(how: 'ro' | 'rw'): void {
    runProgram('mount', '-o', `remount,${how}`, this.home)
  }

  /** Fills it with another file. @param leftBytes that stay free; 0 uses the last block as well. */
  fill(leftBytes: number): void {
    this.#fills += 1
    const path = join(this.home, `fill-${this.#fills}`)
    const { bavail, bsize } = statfsSync(this.home)
    const bytes = bavail * bsize - leftBytes
    if (bytes > 0) runProgram('fallocate', '-l', `${bytes - (leftBytes === 0 ? bsize : 0)}`, path)
    if (leftBytes > 0) return
    try {
      for (;;) appendFileSync(path, Buffer.alloc(bsize, 1))
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== 'ENOSPC') throw error
    }
  }

  /** Waits until no process and no loop device uses it. */
  unmount(): Promise<void> {
    return this.#mount.unmount()
  }

  /** Removes it; it must be unmounted. */
  remove(): void {
    rmSync(this.#directory, { recursive: true })
  }

  /** From now on every access fails with EIO, as on a disk that is broken. */
  break(): void {
    runProgram('python3', '-c', shutdown, this.home)
  }
}
