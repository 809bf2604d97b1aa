/**
 * Builds the Debian package from the npm package in `build/package`, and prints its path. It includes the pinned
 * Node.js, since that of Debian is older. Needs only dpkg-deb.
 */
import { execFileSync } from 'node:child_process'
import { cpSync, mkdirSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { gzipSync } from 'node:zlib'
import { defaultHome, defaultStateDir } from '../../src/base/instance.ts'
import { completables } from '../../src/cli/completion.ts'
import { runnerCapabilities } from '../../src/cli/privilege.ts'
import { loadCommands } from '../../src/cli/program.ts'
import { defaultConfigFile, newConfigText } from '../../src/cli/systemd/install-unit.ts'
import { unitText } from '../../src/cli/systemd/unit.ts'
import { changelog, control, copyright, lintianOverrides, scripts } from './deb-files.ts'
import { manPage } from './man-page.ts'

const root = join(import.meta.dirname, '../..')
const target = join(root, 'build/deb')
const seconds = process.env.SOURCE_DATE_EPOCH
const date = seconds === undefined ? new Date() : new Date(Number(seconds) * 1000)
const { version } = JSON.parse(readFileSync(join(root, 'package.json'), 'utf8'))
const run = (program: string, ...words: string[]) => execFileSync(program, words, { encoding: 'utf8' }).trim()
const architecture = run('dpkg', '--print-architecture')

rmSync(target, { recursive: true, force: true })
copyProgram()
await writeFiles()
const size = Number(run('du', '-sk', target).split('\t')[0])
write('DEBIAN/control', control({ version, architecture, sizeKb: size }))
write('DEBIAN/conffiles', `${defaultConfigFile}\n`)
for (const [name, text] of Object.entries(scripts)) write(`DEBIAN/${name}`, text, 0o755)
run('chmod', '-R', 'go-w,go+rX', target)
run('strip', '--strip-unneeded', join(target, 'usr/lib/glovebox/build/kernel.node'))
run('chmod', '755', join(target, 'usr/lib/glovebox/guest/images/install-packages.sh'))
run(
  'find',
  join(target, 'usr/lib/glovebox/node_modules'),
  '-type',
  'f',
  '!',
  '-path',
  '*/bin/node',
  '-exec',
  'chmod',
  '644',
  '{}',
  '+',
)
const file = join(root, 'build', `glovebox_${version}_${architecture}.deb`)
run('dpkg-deb', '--root-owner-group', '-Zgzip', '-z4', '--build', target, file)
console.log(file)

function copyProgram(): void {
  const program = join(target, 'usr/lib/glovebox')
  mkdirSync(dirname(program), { recursive: true })
  cpSync(join(root, 'build/package'), program, { recursive: true })
  const node = run('readlink', '-f', join(root, 'node_modules/.bin/node'))
  const copied = join(program, 'node_modules', run('basename', dirname(dirname(node))))
  mkdirSync(join(copied, 'bin'), { recursive: true })
  run('strip', '--strip-unneeded', '-o', join(copied, 'bin/node'), node)
  for (const unused of ['.package-lock.json', 'bin/glovebox.cjs', 'LICENSE'])
    rmSync(join(program, unused), { force: true })
  mkdirSync(join(program, 'node_modules/.bin'), { recursive: true })
  symlinkSync(`../${run('basename', copied)}/bin/node`, join(program, 'node_modules/.bin/node'))
  mkdirSync(join(target, 'usr/bin'), { recursive: true })
  symlinkSync('../lib/glovebox/bin/glovebox', join(target, 'usr/bin/glovebox'))
  const docs = join(target, 'usr/share/doc/glovebox')
  mkdirSync(docs, { recursive: true })
  cpSync(join(root, 'deploy'), join(docs, 'examples'), { recursive: true })
}

async function writeFiles(): Promise<void> {
  const io = {
    ...{ stdin: process.stdin, stdout: process.stdout, stderr: process.stderr, env: {} },
    ...{ self: [process.execPath] as const, stop: new AbortController().signal, onRepeatedSignal: () => undefined },
  }
  const cli = { io, exit: () => undefined, allCommands: () => loadCommands(cli) }
  const commands = completables(await cli.allCommands())
  write('usr/share/man/man1/glovebox.1.gz', gzip(manPage(commands, version, date.toISOString().slice(0, 10))))
  const glovebox = join(root, 'bin/glovebox')
  write('usr/share/bash-completion/completions/glovebox', run(glovebox, 'completion', 'bash'))
  write('usr/share/zsh/vendor-completions/_glovebox', run(glovebox, 'completion', 'zsh'))
  write('usr/share/fish/vendor_completions.d/glovebox.fish', run(glovebox, 'completion', 'fish'))
  const paths = {
    program: '/usr/bin/glovebox',
    config: defaultConfigFile,
    home: defaultHome,
    stateDir: defaultStateDir,
  }
  const unit = unitText({ ...paths, drainMs: 10_000, capabilities: runnerCapabilities })
  write('lib/systemd/system/glovebox.service', unit)
  write(defaultConfigFile, newConfigText)
  write('usr/share/doc/glovebox/copyright', copyright)
  write('usr/share/doc/glovebox/changelog.gz', gzip(changelog(version, date)))
  write('usr/share/lintian/overrides/glovebox', lintianOverrides)
}

function gzip(text: string): Buffer {
  return gzipSync(text, { level: 9 })
}

function write(path: string, content: string | Buffer, mode = 0o644): void {
  mkdirSync(dirname(join(target, path)), { recursive: true })
  writeFileSync(join(target, path), content, { mode })
}
