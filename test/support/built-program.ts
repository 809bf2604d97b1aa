/**
 * Builds the program that some stories start, in `build/program`, before the first test runs: the source code and its
 * largest dependencies, without types, in few files. Node.js reads more than 2,300 files to start the API server from the
 * source tree, which takes several times as long. All other tests start the source tree or packages.
 */
import { createHash } from 'node:crypto'
import { existsSync, globSync, mkdirSync, readdirSync, readFileSync, statSync } from 'node:fs'
import { chmod, mkdtemp, rename, rm, writeFile } from 'node:fs/promises'
import { join, relative } from 'node:path'
// A dependency of vitest, in the version of the lock file.
import { type Plugin, rolldown } from 'rolldown'

const root = join(import.meta.dirname, '../..')
const programs = join(root, 'build/program')

/** Packages of many small files. */
const included = ['typebox', 'kysely', 'yaml', 'undici', 'ajv', '@oxc-project/runtime']

/** How long programs of earlier versions of the source remain for servers that still run them, in milliseconds. */
const keptMs = 24 * 3_600_000

/** What `globalSetup` of vitest calls. Concurrent runs build independently; the first one to finish wins. */
export default async function buildProgram(): Promise<void> {
  mkdirSync(programs, { recursive: true })
  const version = sourceVersion()
  const directory = join(programs, version)
  if (!existsSync(directory)) await build(directory, version)
  await replace(join(programs, 'glovebox'), launcher(version))
  for (const name of readdirSync(programs)) {
    const path = join(programs, name)
    if (name !== version && Date.now() - statSync(path).mtimeMs > keptMs)
      await rm(path, { recursive: true, force: true })
  }
}

/** Returns a hash of everything that the program is built from. */
function sourceVersion(): string {
  const hash = createHash('sha256')
  const sources = globSync('src/**/*.ts', { cwd: root }).toSorted()
  for (const path of [...sources, 'package-lock.json', relative(root, import.meta.filename)]) {
    hash
      .update(`${path}\0`)
      .update(readFileSync(join(root, path)))
      .update('\0')
  }
  return hash.digest('hex').slice(0, 16)
}

async function build(directory: string, version: string): Promise<void> {
  const bundle = await rolldown({
    input: { main: join(root, 'src/main.ts') },
    cwd: root,
    platform: 'node',
    transform: { target: 'esnext' },
    external: (id) => !/^[./]/.test(id) && !included.some((name) => id === name || id.startsWith(`${name}/`)),
    plugins: [ownPlaces(version)],
    logLevel: 'silent',
  })
  const unfinished = await mkdtemp(join(programs, 'unfinished-'))
  try {
    // Flat, so that the root of the source tree is the same path from all files.
    await bundle.write({
      dir: unfinished,
      format: 'esm',
      entryFileNames: '[name].js',
      chunkFileNames: '[name]-[hash].js',
    })
    await chmod(unfinished, 0o755) // The user of the API server reads it.
    await rename(unfinished, directory)
  } catch (error) {
    if (!existsSync(directory)) throw error
  } finally {
    await bundle.close()
    await rm(unfinished, { recursive: true, force: true })
  }
}

/** Lets the modules find their files in the source tree, and the program start itself as it was built. */
function ownPlaces(version: string): Plugin {
  return {
    name: 'own-places',
    load(id) {
      if (id !== join(root, 'src/cli/main-file.ts')) return null
      return `export const mainFile = ${JSON.stringify(`build/program/${version}/main.js`)}`
    },
    transform(code, id) {
      const path = relative(root, id)
      if (!path.startsWith('src/') || path === 'src/main.ts' || !code.includes('import.meta.')) return null
      const url = `new URL(${JSON.stringify(`../../../${path}`)}, import.meta.url)`
      return code.replaceAll(/\bimport\.meta\.(url|filename)\b/g, (_, name) =>
        name === 'url' ? `${url}.href` : `decodeURIComponent(${url}.pathname)`,
      )
    },
  }
}

/** Returns the command, which does the same as `bin/glovebox`. */
const launcher = (version: string): string => `#!/bin/sh
set -eu
root=$(dirname "$(dirname "$(dirname "$(readlink -f "$0")")")")
exec "$root/node_modules/.bin/node" "$root/build/program/${version}/main.js" "$@"
`

async function replace(path: string, content: string): Promise<void> {
  if (existsSync(path) && readFileSync(path, 'utf8') === content) return
  const next = `${path}.${process.pid}`
  await writeFile(next, content)
  await chmod(next, 0o755)
  await rename(next, path)
}
