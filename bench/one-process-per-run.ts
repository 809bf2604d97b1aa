import { spawn } from 'node:child_process'
import { dirname } from 'node:path'
import type { OciBundle } from './oci-bundle.ts'
import type { Program } from './programs.ts'

/** A way to run a program for which each run starts a process of its own, as a program without us would. */
export interface Launcher {
  name: string
  /** The whole command line; may prepare files, once. */
  commandFor(program: Program): readonly [string, ...string[]]
}

/** The interpreter alone: no isolation at all. */
export const bare: Launcher = { name: 'bare spawn', commandFor: ({ argv }) => argv }

/** All namespaces that bubblewrap makes, /usr read-only; no limits of any kind. */
export const bubblewrap: Launcher = {
  name: 'bubblewrap',
  commandFor: ({ argv }) => [
    ...(['bwrap', '--unshare-all', '--die-with-parent', '--new-session', '--ro-bind', '/usr', '/usr'] as const),
    ...['bin', 'sbin', 'lib', 'lib64'].flatMap((name) => ['--symlink', `usr/${name}`, `/${name}`]),
    ...['--proc', '/proc', '--dev', '/dev', '--tmpfs', '/tmp'],
    ...(argv[0].startsWith('/usr/') ? [] : ['--ro-bind', dirname(argv[0]), dirname(argv[0])]),
    ...argv,
  ],
}

/** A container per run, made by an OCI runtime, with the limits of our default profile. */
export const oci = (name: 'crun' | 'runc', bundle: OciBundle): Launcher => ({
  name: `${name} run`,
  commandFor: (program) => [
    ...([name, '--root', bundle.stateOf(name), 'run', '--bundle', bundle.write(name, program)] as const),
    `${bundle.id}-${name}`,
  ],
})

/** A container per run, made by podman over the same root directory. */
export const podman = (bundle: OciBundle): Launcher => ({
  name: 'podman run',
  commandFor: ({ argv }) => [
    ...(['podman', 'run', '--rm', '--network', 'none', '--read-only', '--volume', '/usr:/usr:ro'] as const),
    ...(argv[0].startsWith('/usr/') ? [] : ['--volume', `${dirname(argv[0])}:${dirname(argv[0])}:ro`]),
    ...['--rootfs', bundle.rootfs, ...argv],
  ],
})

/** @returns what runs the program once and checks what it printed. */
export function callOf(launcher: Launcher, program: Program): () => Promise<void> {
  const command = launcher.commandFor(program)
  return () => runOnce(command, program.prints)
}

/** @returns why the launcher cannot be used here, found out by using it. */
export async function unusable(launcher: Launcher, program: Program): Promise<string | undefined> {
  try {
    await callOf(launcher, program)()
    return undefined
  } catch (error) {
    return (error as Error).message
  }
}

/** From the spawn until the process is gone and all that it printed was read. */
function runOnce([path, ...args]: readonly [string, ...string[]], expected: string): Promise<void> {
  return new Promise((resolve, reject) => {
    const child = spawn(path, args, { stdio: ['ignore', 'pipe', 'pipe'], env: { PATH: process.env.PATH } })
    let stdout = ''
    let stderr = ''
    child.stdout.setEncoding('utf8').on('data', (text: string) => {
      stdout += text
    })
    child.stderr.setEncoding('utf8').on('data', (text: string) => {
      stderr = (stderr + text).slice(-500)
    })
    child.once('error', (error: NodeJS.ErrnoException) => {
      reject(new Error(error.code === 'ENOENT' ? 'it is not installed' : error.message))
    })
    child.once('close', (code) => {
      if (code === 0 && stdout === expected) resolve()
      else reject(new Error(`${path} exited with ${code}: ${stderr.trim() || JSON.stringify(stdout.slice(0, 100))}`))
    })
  })
}
