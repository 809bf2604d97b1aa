/** `glovebox images`. The runner of a running server does the work, so that it can use the images at once. */
import { resolve } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import type { Command } from 'commander'
import { Refusal } from '../../base/errors.ts'
import type { ImageProgress } from '../../base/image.ts'
import { openInstance } from '../../base/instance.ts'
import { operator } from '../../core/admin/admin.ts'
import {
  changeImage,
  collectImages,
  getImage,
  type ImageChange,
  type ImageView,
  listImages,
  packagesOf,
  removeImage,
} from '../../core/admin/images.ts'
import { RunnerClient } from '../../runner/client/client.ts'
import { type Cli, collect, withExamples } from '../command.ts'
import { type Columns, printItems } from '../output.ts'
import { configOf } from '../setting-options.ts'
import { printable } from '../terminal.ts'
import { type AdminSession, adminCommand, withAdmin } from './context.ts'

export function register(program: Command, cli: Cli): void {
  const images = program.command('images').description('Manage the images that runs and sandboxes use.')
  const add = (usage: string, description: string) => adminCommand(images, usage, description)
  withExamples(
    add('pull <image>', 'Pull an image from a registry. A pull that was interrupted continues where it ended.'),
    'glovebox images pull docker.io/library/python:3.12-slim',
  ).action(withRunner(cli, (session, name: string) => change(session, { kind: 'pull', name })))
  withExamples(
    add(
      'build <image>',
      'Build an image from Debian packages. The image data has the usual packages for data analysis.',
    ).option('--package <name>', 'Debian package; can be repeated. In data it is added to the usual ones', collect, []),
    'glovebox images build data',
    'glovebox images build data --package ffmpeg',
    'glovebox images build tools --package git --package jq',
  ).action(withRunner(cli, build))
  withExamples(
    add('import <image> <path>', 'Import an OCI layout, a directory with a root filesystem, or a tar archive of one.'),
    'glovebox images import own/rootfs:1 ./rootfs',
  ).action(
    withRunner(cli, (session, name: string, path: string) =>
      change(session, { kind: 'import', name, path: resolve(path) }),
    ),
  )
  add('ls', 'List the images of this server.').action(withRunner(cli, list))
  add('show <image>', 'Print an image with its configuration and its software.').action(withRunner(cli, show))
  add('rm <image>', 'Remove the name of an image, and the image when nothing else uses it.').action(
    withRunner(cli, remove),
  )
  add('gc', 'Remove images without a name, and layers that no image has.').action(withRunner(cli, gc))
}

type Session = AdminSession & { runner: RunnerClient }

/** How long to wait for the runner of a server, in milliseconds. */
const runnerWithinMs = 3_000

/** Connects as root, who may import files of the machine, before the command becomes the user of the database. */
function withRunner<Given extends unknown[]>(
  cli: Cli,
  work: (session: Session, ...given: Given) => Promise<number | undefined>,
) {
  return async (...given: unknown[]): Promise<void> => {
    const config = configOf(given.at(-1) as Command, cli.io)
    const { socketPath } = openInstance(config.home, config.stateDir)
    const runner = new RunnerClient(socketPath, () => undefined)
    try {
      for (let waitedMs = 0; runner.identity === undefined; waitedMs += 50) {
        if (waitedMs > runnerWithinMs)
          throw new Refusal('unavailable', { reason: 'no server is running with this home; start glovebox serve' })
        await sleep(50)
      }
      await withAdmin(cli, (session, ...rest: Given) => work({ ...session, runner }, ...rest))(...given)
    } finally {
      await runner.close()
    }
  }
}

async function change(session: Session, wanted: ImageChange): Promise<undefined> {
  const { io } = session
  const report = new ProgressLines(session)
  const image = await changeImage(session, operator, wanted, (progress) => report.show(progress), io.stop)
  report.end()
  session.printResult(image, `${wanted.name}: ${summary(image)}`)
  return undefined
}

function build(session: Session, name: string, { package: added }: { package: readonly string[] }): Promise<undefined> {
  const packages = packagesOf(name, added)
  return change(session, { kind: 'build', name, packages })
}

/** Returns a size of an image, which is megabytes at least, as people compare them. */
const sizeInWords = (bytes: number): string =>
  bytes < 2 ** 30 ? `${(bytes / 2 ** 20).toFixed(1)} MiB` : `${(bytes / 2 ** 30).toFixed(2)} GiB`

const summary = ({ size_bytes: size, interpreters }: ImageView): string =>
  [sizeInWords(size), ...Object.values(interpreters)].join(', ')

const columns: Columns<ImageView> = {
  NAME: ({ names, id }) => names.join(', ') || id,
  SOURCE: ({ source }) => source,
  SIZE: ({ size_bytes: size }) => sizeInWords(size),
  FILES: ({ files }) => `${files}`,
  CREATED: (image) => image.created_at,
  LANGUAGES: ({ interpreters }) => Object.keys(interpreters).join(', ') || '-',
}

async function list(session: Session, options: { json?: boolean }): Promise<undefined> {
  printItems(await listImages(session, operator), columns, options, session.io)
}

async function show(session: Session, name: string): Promise<undefined> {
  const image = await getImage(session, operator, name)
  session.printResult(image, printable(JSON.stringify(image, null, 2), session.io.stdout))
}

async function remove(session: Session, name: string): Promise<undefined> {
  await removeImage(session, operator, name)
  session.printResult({ name, state: 'removed' }, `${name} was removed.`)
}

async function gc(session: Session): Promise<undefined> {
  const collected = await collectImages(session, operator)
  const { images, layers, bytes } = collected
  session.printResult(collected, `Removed ${images} images and ${layers} layers, ${sizeInWords(bytes)}.`)
}

/** Shows steps on standard error: on a terminal in one line, otherwise one line for each. */
class ProgressLines {
  readonly #session: Session
  #last = ''

  constructor(session: Session) {
    this.#session = session
  }

  show({ step, detail, done, total }: ImageProgress): void {
    const { io } = this.#session
    const isTerminal = io.stderr.isTTY === true
    const what = printable(`${step} ${detail}`.trim(), io.stderr)
    const amount =
      total === 0 ? '' : total > 10_000 ? `${sizeInWords(done)} of ${sizeInWords(total)}` : `${done}/${total}`
    if (isTerminal) io.stderr.write(`\r\x1b[K${`${what} ${amount}`.slice(0, 100)}`)
    // Files of a download are too many for a log.
    else if (step !== this.#last || step === 'installing' || step === 'unpacking') this.#session.notify(what)
    this.#last = step
  }

  end(): void {
    if (this.#session.io.stderr.isTTY === true) this.#session.io.stderr.write('\r\x1b[K')
  }
}
