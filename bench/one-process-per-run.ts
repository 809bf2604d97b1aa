import { spawn } from 'node:child_process'
import { dirname } from 'node:path'
import type { OciBundle } from './oci-bundle.ts'
import type { Program } from './programs.ts'

/** A way to run programs on a machine without Glovebox. */
export interface Contender {
  name: string
  /** May prepare files, once. @returns a function that runs the program once and checks its output. */
  callOf(program: Program): () => Promise<void>
  /** In the environment of every process that it starts, or of one of its ancestors. */
  mark: { variable: string } | { ancestor: number }
}

/** Variable that distinguishes the processes of a run from all others; a monitor that detaches itself keeps it. */
const markVariable = `GLOVEBOX_BENCH_${process.pid}`

/** Every run starts a new process. */
const launcher = (name: string, commandFor: (program: Program) => readonly [string, ...string[]]): Contender => ({
  name,
  mark: { variable: markVariable },
  callOf: (program) => {
    const command = commandFor(program)
    return () => runOnce(command, program.prints)
  },
})

/** The interpreter only, without isolation. */
export const bare: Contender = launcher('bare spawn', ({ argv }) => argv)

/** All namespaces that bubblewrap creates, /usr read-only; no limits of any kind. */
export const bubblewrap: Contender = launcher('bubblewrap', ({ argv }) => [
  ...(['bwrap', '--unshare-all', '--die-with-parent', '--new-session', '--ro-bind', '/usr', '/usr'] as const),
  ...['bin', 'sbin', 'lib', 'lib64'].flatMap((name) => ['--symlink', `usr/${name}`, `/${name}`]),
  ...['--proc', '/proc', '--dev', '/dev', '--tmpfs', '/tmp'],
  ...(argv[0].startsWith('/usr/') ? [] : ['--ro-bind', dirname(argv[0]), dirname(argv[0])]),
  ...argv,
])

/**
 * A new container per run, created by an OCI runtime, with the limits of our default profile. Several may run at once,
 * each with its own name.
 */
export const oci = (name: 'crun' | 'runc', bundle: OciBundle): Contender => ({
  name: `${name} run`,
  mark: { variable: markVariable },
  callOf: (program) => {
    const free: string[] = []
    let made = 0
    return async () => {
      // A bundle names its cgroup, so parallel runs need several.
      const id = free.pop() ?? bundle.write(name, program, `${name}-${++made}`)
      await runOnce([name, '--root', bundle.stateOf(name), 'run', '--bundle', id, bundle.nameOf(id)], program.prints)
      free.push(id)
    }
  },
})

/** A new container per run, created by podman over the same root directory, with the limits of our default profile. */
export const podman = (bundle: OciBundle, runtime: 'crun' | 'runc'): Contender =>
  launcher(`podman run (${runtime})`, ({ argv }) => [
    ...(['podman', '--runtime', runtime, 'run', '--rm', '--network', 'none', '--read-only'] as const),
    // Set explicitly, since its default may exceed what a machine allows.
    ...['--ulimit', 'nofile=1024:1024', '--ulimit', 'nproc=1024:1024'],
    ...['--memory', '512m', '--pids-limit', '128', '--cpus', '1', '--volume', '/usr:/usr:ro'],
    ...(argv[0].startsWith('/usr/') ? [] : ['--volume', `${dirname(argv[0])}:${dirname(argv[0])}:ro`]),
    ...['--rootfs', bundle.rootfs, ...argv],
  ])

/** @returns why it cannot be used here, determined by using it. */
export async function unusable(contender: Contender, program: Program): Promise<string | undefined> {
  try {
    await contender.callOf(program)()
    return undefined
  } catch (error) {
    return (error as Error).message
  }
}

/** From the spawn until the process is gone and its whole output was read. */
function runOnce([path, ...args]: readonly [string, ...string[]], expected: string): Promise<void> {
  return new Promise((resolve, reject) => {
    const env = { PATH: process.env.PATH, [markVariable]: '1' }
    const child = spawn(path, args, { stdio: ['ignore', 'pipe', 'pipe'], env })
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
