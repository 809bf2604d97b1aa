/** Installations of packages of profiles that end with a process of the server, and the real registries. */

import { readdirSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { DatabaseSync } from 'node:sqlite'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { type Execution, post } from '../support/calls.ts'
import { type Glovebox, killIfThere, type Place, until } from '../support/glovebox.ts'
import { indexesOfThisMachine } from '../support/machine-network.ts'
import { openPackageIndex, type PackageIndex } from '../support/package-index.ts'
import { disposablePlaces } from '../support/story.ts'

const machine = await indexesOfThisMachine()
const newPlace = disposablePlaces()

const ask = ({ url }: Glovebox, language: string, code: string) =>
  post<Execution & { message?: string }>(`${url}/v1/sandbox/execute`, { language, code, timeout: 120 })

/** Runs code as soon as the packages are installed, whatever happens to the server meanwhile. */
async function run(server: Glovebox, language: string, code: string): Promise<Execution> {
  let answer: Awaited<ReturnType<typeof ask>> | undefined
  await until(
    async () => {
      answer = await ask(server, language, code).catch(() => undefined)
      return answer !== undefined && answer.status !== 503
    },
    'the packages are installed',
    280_000,
  )
  if (answer?.status !== 200) throw new Error(`refused: ${answer?.status} ${JSON.stringify(answer?.body)}`)
  return answer.body
}

describe('an installation of packages', { timeout: 300_000 }, () => {
  let index: PackageIndex
  let place: Place
  let server: Glovebox
  beforeAll(async () => {
    index = await openPackageIndex()
    place = newPlace()
  })
  afterAll(() => index.close())

  const rows = () => {
    const database = new DatabaseSync(join(place.directory, 'home', 'front', 'glovebox.db'), { readOnly: true })
    try {
      return database.prepare('select id, state from package_layers').all() as { id: string; state: string }[]
    } finally {
      database.close()
    }
  }
  const stored = () =>
    readdirSync(join(place.directory, 'home', 'storage'), { recursive: true, encoding: 'utf8' }).join('\n')

  it('begins again when the process that wanted it was killed, and leaves nothing of the first attempt', async () => {
    let release = () => {}
    index.hold = new Promise((resolve) => (release = resolve))
    const file = join(place.directory, 'glovebox.yaml')
    const network = `package_indexes: [${JSON.stringify(index.rule)}]\nenv: ${JSON.stringify(index.env)}\n`
    writeFileSync(file, `${network}packages: { pip: [greeting==1.0] }\npackages_size: 64MiB\n`)
    server = await place.start('--config', file)
    expect((await ask(server, 'python', 'import greeting')).status).toBe(503)
    await until(() => index.requests.length > 0, 'pip asks for the package')
    const [first] = rows()
    expect(first?.state).toBe('building')
    for (const pid of [server.frontPid, server.runnerPid]) {
      killIfThere(pid)
      await until(async () => (await ask(server, 'bash', 'true').catch(() => undefined))?.status === 503, 'it is back')
    }
    release()
    expect(await run(server, 'python', 'import greeting; print(greeting.version)')).toMatchObject({ stdout: '1.0\n' })
    const [last, ...others] = rows()
    expect([last?.state, others]).toEqual(['ready', []])
    expect(last?.id).not.toBe(first?.id)
    await until(() => !stored().includes(first?.id ?? ''), 'nothing of the first attempt is left')
    expect(stored()).toContain(last?.id ?? '')
  })

  it('begins again when its files are lost', async () => {
    const [old] = rows()
    await server.end()
    const lost = readdirSync(join(place.directory, 'home', 'storage'), { recursive: true, encoding: 'utf8' })
    for (const path of lost.filter((entry) => entry.includes(old?.id ?? ''))) {
      rmSync(join(place.directory, 'home', 'storage', path), { recursive: true, force: true })
    }
    server = await place.start('--config', join(place.directory, 'glovebox.yaml'))
    expect(await run(server, 'python', 'import greeting; print(greeting.version)')).toMatchObject({ stdout: '1.0\n' })
    expect(rows()[0]?.id).not.toBe(old?.id)
  })

  const title = machine.isReached ? 'uses the registries of the machine' : 'uses registries (no package registry)'
  it.skipIf(!machine.isReached)(title, async () => {
    const here = newPlace()
    const file = join(here.directory, 'glovebox.yaml')
    const packages = 'packages: { pip: [numpy, black], npm: [lodash@4, esbuild] }\n'
    writeFileSync(file, `package_indexes: ${JSON.stringify(machine.rules)}\n${packages}limit_memory: 1GiB\n`)
    const real = await here.start('--config', file)
    const code = 'import numpy; print(numpy.__file__, numpy.arange(5).sum())'
    expect(await run(real, 'python', code)).toMatchObject({
      stdout: '/opt/packages/python/site-packages/numpy/__init__.py 10\n',
    })
    const node = `
const { VERSION } = require('lodash')
const { transformSync } = require('esbuild')
console.log(VERSION[0], transformSync('let a: number = 1', { loader: 'ts' }).code)`
    expect(await run(real, 'bash', 'black --version | head -1 && esbuild --version')).toMatchObject({
      stdout: expect.stringMatching(/^black, .*\n\d+\.\d+\.\d+\n$/),
    })
    expect(await run(real, 'node', node)).toMatchObject({
      stdout: '4 let a = 1;\n\n',
    })
  })
})
