import { mkdirSync, mkdtempSync, readdirSync, rmdirSync, rmSync, symlinkSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { basename, dirname, join } from 'node:path'
import type { Program } from './programs.ts'

const cgroupRoot = '/sys/fs/cgroup'
/** Where all cgroups of the product are, in every hierarchy, including those of benchmarks. */
const cgroupPrefix = 'glovebox'

/**
 * The smallest container that runs a program from the /usr of this machine: six namespaces, an empty read-only root, no
 * capabilities, memory, process and CPU limits like those of our default profile; no user namespace, no seccomp filter.
 */
export class OciBundle {
  readonly id: string
  readonly rootfs: string
  readonly #directory: string

  constructor() {
    this.#directory = mkdtempSync(join(tmpdir(), 'glovebox-bench-oci-'))
    this.id = `bench-${process.pid}`
    this.rootfs = join(this.#directory, 'rootfs')
    for (const name of ['proc', 'dev', 'tmp', 'usr', 'opt/node'])
      mkdirSync(join(this.rootfs, name), { recursive: true })
    for (const name of ['bin', 'sbin', 'lib', 'lib64']) symlinkSync(`usr/${name}`, join(this.rootfs, name))
  }

  /** Where a runtime stores the state of its containers. */
  stateOf(runtime: string): string {
    return join(this.#directory, 'state', runtime)
  }

  /** Writes the bundle of one program. @param leaf name of its cgroup. @returns its directory. */
  write(runtime: string, { argv }: Program, leaf: string): string {
    const bundle = mkdtempSync(join(this.#directory, `${runtime}-`))
    writeFileSync(join(bundle, 'config.json'), JSON.stringify(this.#config(leaf, argv)))
    return bundle
  }

  /** The name of the container of a bundle. */
  nameOf(bundle: string): string {
    return `${this.id}-${basename(bundle)}`
  }

  /** Removes the files, and the cgroups that the runtimes leave behind. */
  remove(): void {
    rmSync(this.#directory, { recursive: true, force: true })
    for (const hierarchy of readdirSync(cgroupRoot)) {
      for (const path of [join(hierarchy, cgroupPrefix, this.id), join(hierarchy, cgroupPrefix)]) {
        removeEmpty(join(cgroupRoot, path))
      }
    }
    removeEmpty(join(cgroupRoot, cgroupPrefix, this.id))
    removeEmpty(join(cgroupRoot, cgroupPrefix))
  }

  #config(leaf: string, argv: readonly [string, ...string[]]): object {
    const fromUsr = argv[0].startsWith('/usr/')
    const args = fromUsr ? argv : [argv[0].replace(dirname(argv[0]), '/opt/node'), ...argv.slice(1)]
    const readOnly = (source: string, destination: string) => ({
      ...{ type: 'bind', source, destination, options: ['bind', 'ro', 'nosuid', 'nodev'] },
    })
    const tmpfs = (destination: string) => ({ type: 'tmpfs', source: 'tmpfs', destination, options: ['nosuid'] })
    return {
      ociVersion: '1.0.2',
      root: { path: this.rootfs, readonly: true },
      hostname: 'bench',
      mounts: [
        { type: 'proc', source: 'proc', destination: '/proc', options: ['nosuid', 'noexec', 'nodev'] },
        tmpfs('/dev'),
        tmpfs('/tmp'),
        readOnly('/usr', '/usr'),
        ...(fromUsr ? [] : [readOnly(dirname(argv[0]), '/opt/node')]),
      ],
      process: {
        terminal: false,
        user: { uid: 1000, gid: 1000 },
        args,
        env: ['PATH=/usr/bin:/bin'],
        cwd: '/',
        capabilities: {},
        noNewPrivileges: true,
      },
      linux: {
        cgroupsPath: `/${cgroupPrefix}/${this.id}/${leaf}`,
        namespaces: ['pid', 'mount', 'ipc', 'uts', 'network', 'cgroup'].map((type) => ({ type })),
        resources: {
          memory: { limit: 512 * 1024 * 1024 },
          pids: { limit: 128 },
          cpu: { quota: 100_000, period: 100_000 },
        },
      },
    }
  }
}

function removeEmpty(path: string): void {
  try {
    rmdirSync(path)
  } catch (error) {
    // Absent, or in use by an instance of the product.
    const { code } = error as NodeJS.ErrnoException
    if (code !== 'ENOENT' && code !== 'ENOTDIR' && code !== 'EBUSY' && code !== 'ENOTEMPTY') throw error
  }
}
