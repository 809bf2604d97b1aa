/** The home of a server on a disk with a volatile write cache, whose power a test can cut. */
import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { type Glovebox, killIfThere, type Place } from './glovebox.ts'
import { directoryFor, LoopMount, runProgram } from './loop-disk.ts'

const server = fileURLToPath(new URL('./volatile-disk.py', import.meta.url))

/** Must be used in a mount namespace of the test, as `LoopDisk`. */
export class VolatileDisk {
  /** The mount point, which is the home of the servers in the place. */
  readonly home: string
  readonly #directory: string
  readonly #stored: string
  readonly #deviceDirectory: string
  readonly #mount: LoopMount
  #device: ChildProcess | undefined

  private constructor(place: Place, bytes: number) {
    this.home = join(place.directory, 'home')
    this.#directory = mkdtempSync(join(directoryFor(bytes), 'gb-disk-'))
    this.#stored = join(this.#directory, 'stored.img')
    this.#deviceDirectory = join(this.#directory, 'device')
    this.#mount = new LoopMount(join(this.#deviceDirectory, 'disk'), this.home)
    mkdirSync(this.home)
    mkdirSync(this.#deviceDirectory)
  }

  /** Creates and mounts it. */
  static async open(place: Place, bytes: number): Promise<VolatileDisk> {
    const disk = new VolatileDisk(place, bytes)
    writeFileSync(disk.#stored, '')
    runProgram('mkfs.ext4', '-q', '-F', '-m', '0', disk.#stored, `${bytes / 1024}k`)
    await disk.#attach()
    return disk
  }

  async #attach(): Promise<void> {
    const args = [server, this.#deviceDirectory, this.#stored]
    const device = spawn('python3', args, { stdio: ['ignore', 'pipe', 'inherit'] })
    this.#device = device
    await Promise.race([
      once(device.stdout, 'data'),
      once(device, 'exit').then(() => Promise.reject(new Error('the disk has ended'))),
    ])
    this.#mount.mount()
  }

  /** Waits until no process uses it. */
  async unmount(): Promise<void> {
    await this.#mount.unmount()
    const ended = once(this.#device!, 'exit')
    runProgram('umount', this.#deviceDirectory)
    await ended
  }

  /** Removes it; it must be unmounted. */
  remove(): void {
    rmSync(this.#directory, { recursive: true })
  }

  /**
   * Cuts the power: what the disk had not been told to store is lost, and every process of the server ends. What was
   * stored is mounted again, as after a boot.
   */
  async cutPower(running: Glovebox): Promise<void> {
    const pids = [running.supervisorPid, running.frontPid, running.runnerPid]
    this.#device!.kill('SIGUSR1')
    // Stopped first, so that no process sees another one die.
    for (const pid of pids) process.kill(pid, 'SIGSTOP')
    for (const pid of pids) killIfThere(pid)
    await running.exited
    await this.unmount()
    await this.#attach()
  }
}
