import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, describe, expect, it } from 'vitest'
import { attempt } from '../../../src/cli/inspect.ts'
import { checkDatabase } from '../../../src/cli/inspect-database.ts'
import { checkClock, checkDisks, checkKernel } from '../../../src/cli/inspect-machine.ts'
import { openEscapes } from '../../../src/cli/known-escapes.ts'
import { missingDefaults } from '../../../src/cli/runner.ts'
import { loadConfig } from '../../../src/config.ts'
import { openStore } from '../../../src/store/sqlite.ts'

const of2025 = ['CVE-2025-31133', 'CVE-2025-52565', 'CVE-2025-52881']

describe('doctor', () => {
  it.each([
    ['runc', 'runc version 1.0.0-rc5', '', ['CVE-2024-21626', ...of2025]],
    ['runc', 'runc version 0.1.1', '', ['CVE-2019-5736', 'CVE-2021-30465', 'CVE-2024-21626', ...of2025]],
    ['runc', 'runc version 1.1.5+ds1', 'CVE-2024-21626: several container breakouts', of2025],
    ['runc', 'runc version 1.1.5+ds1', `CVE-2024-21626, ${of2025.join()}`, []],
    ['runc', 'runc version 1.2.7', '', of2025],
    ['runc', 'runc version 1.2.8', '', []],
    ['runc', 'runc version 1.3.2', '', of2025],
    ['runc', 'runc version 1.3.3', '', []],
    ['runc', 'runc version 1.5.0', '', []],
    ['crun', 'crun version 1.8.1', '', []],
    ['crun', 'crun version 0.10.4', '', ['CVE-2019-18837']],
  ])('knows which escapes %s permits: %s', (runtime, version, changelog, open) => {
    expect(openEscapes(runtime, version, changelog)).toEqual(open)
  })

  it('states what an older kernel lacks, and refuses one that is too old', () => {
    expect(checkKernel('6.12.1-amd64')).toEqual({ name: 'kernel', ok: true, detail: 'Linux 6.12.1-amd64' })
    expect(checkKernel('6.1.0-28-amd64')).toMatchObject({ ok: true, detail: expect.stringContaining('each run') })
    expect(checkKernel('5.10.0')).toMatchObject({ ok: false, remedy: expect.stringContaining('5.12') })
  })

  it('notices a clock that is years behind', () => {
    expect(checkClock(0)).toMatchObject({ ok: false, detail: expect.stringContaining('1970') })
    expect(checkClock()).toMatchObject({ ok: true })
  })

  it('checks the disks of both directories, also of one that does not exist yet', async () => {
    const checks = await checkDisks({ home: '/tmp/missing/glovebox', state_dir: '/proc' })
    expect(checks.map(({ name }) => name)).toEqual(expect.arrayContaining(['disk of home', 'disk of state_dir']))
    expect(checks.find(({ name }) => name === 'disk of state_dir')).toMatchObject({
      ok: false,
      remedy: expect.stringContaining('state_dir'),
    })
  })
})

describe('the check of the database', () => {
  const directory = mkdtempSync(join(tmpdir(), 'glovebox-doctor-'))
  afterAll(() => rmSync(directory, { recursive: true }))
  const path = join(directory, 'glovebox.db')

  it('is not made where there is no database yet', () => {
    expect(checkDatabase(path)).toEqual([])
  })

  it('succeeds beside a server that uses it, and finds damaged pages and other files', async () => {
    const store = await openStore(path)
    expect(checkDatabase(path)).toMatchObject([{ name: 'database', ok: true }])
    await store.close()
    const whole = readFileSync(path)
    const damaged = Buffer.from(whole)
    damaged.fill(0xff, 4096, 5 * 4096)
    writeFileSync(path, damaged)
    expect(checkDatabase(path)).toMatchObject([{ ok: false, remedy: expect.stringContaining('glovebox restore') }])
    writeFileSync(path, 'no database '.repeat(500))
    expect(checkDatabase(path)).toMatchObject([{ ok: false, detail: expect.stringContaining('not a database') }])
  })
})

describe('a check that cannot be made', () => {
  it('is reported as failed with its reason, and the others are made', async () => {
    const failing = attempt('disks', () => checkDisks({ home: '/tmp/\0' }))
    expect(await failing).toMatchObject([{ name: 'disks', ok: false, detail: expect.stringContaining('null bytes') }])
  })
})

describe('a server', () => {
  it('reports a missing default language when it starts', () => {
    const config = loadConfig({ flags: {}, env: {}, file: undefined })
    expect(missingDefaults(config, ['python', 'bash'])).toEqual([])
    expect(missingDefaults(config, ['bash'])).toEqual([expect.stringMatching(/default language python.* bash\.$/)])
  })
})
