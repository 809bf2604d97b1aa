import { mkdirSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { startAgent, type TestAgent } from '../../support/agent-process.ts'
import { install, installWithinMs, isAvailable } from '../../support/installed-packages.ts'

const servers = {
  from: 'npm',
  specs: ['typescript-language-server@6.0.2', 'typescript@5.9.3', 'pyright@1.1.414'],
} as const
const offline = !(await isAvailable(servers))

describe.skipIf(offline)('language servers that are installed in a sandbox', () => {
  const root = mkdtempSync(join(tmpdir(), 'glovebox-language-'))
  let agent: TestAgent

  const write = (path: string, content: string) => {
    mkdirSync(dirname(join(root, path)), { recursive: true })
    writeFileSync(join(root, path), content)
  }
  interface Place {
    file: string
    line: number
    column: number
  }
  const ask = async (op: string, file_path: string, line: number, col: number) => {
    const { places, source } = await agent.ok<{ places: Place[]; source: string }>(op, { file_path, line, col })
    return { source, places: places.map(({ file, line: at, column }) => `${file}:${at}:${column}`).sort() }
  }

  beforeAll(async () => {
    const directory = await install(servers)
    write(
      'shapes.ts',
      'export interface Shape {\n  area(): number\n}\n\nexport const unit = (): Shape => ({ area: () => 1 })\n',
    )
    write('main.ts', "import { unit } from './shapes.ts'\n\nconsole.log(unit().area())\n")
    write(
      'tsconfig.json',
      '{"compilerOptions": {"allowImportingTsExtensions": true, "noEmit": true, "module": "nodenext"}}',
    )
    write('sums.py', 'def add(a, b):\n    return a + b\n\n\nclass Add:\n    add = 1\n')
    write('use.py', 'from sums import add\n\nprint(add(1, 2))\n')
    mkdirSync(join(root, 'node_modules'))
    symlinkSync(join(directory, 'node_modules/typescript'), join(root, 'node_modules/typescript'))
    agent = await startAgent(root, {
      PATH: `${join(directory, 'node_modules/.bin')}:${dirname(process.execPath)}:/usr/bin:/bin`,
    })
  }, installWithinMs)
  afterAll(async () => {
    await agent.agent.close()
    rmSync(root, { recursive: true, force: true })
  })

  it('find definitions and references of TypeScript', async () => {
    expect(await ask('definition', 'main.ts', 3, 14)).toEqual({
      source: 'typescript-language-server',
      places: ['shapes.ts:5:14'],
    })
    const { places } = await ask('references', 'shapes.ts', 5, 15)
    expect(places).toEqual(['main.ts:1:10', 'main.ts:3:13', 'shapes.ts:5:14'])
  }, 90_000)

  it('see a file as it is now', async () => {
    write('main.ts', "import { unit } from './shapes.ts'\n\n\n\nconsole.log(unit().area())\n")
    expect((await ask('definition', 'main.ts', 5, 14)).places).toEqual(['shapes.ts:5:14'])
  }, 90_000)

  it('find definitions of Python, and only those that are meant', async () => {
    expect(await ask('definition', 'use.py', 3, 8)).toEqual({ source: 'pyright-langserver', places: ['sums.py:1:5'] })
  }, 90_000)

  it('return a new name as a diff, which is not applied', async () => {
    await agent.ok('read', { file_path: 'shapes.ts' })
    const { diff, files } = await agent.ok<{ diff: string; files: number }>('rename', {
      file_path: 'shapes.ts',
      line: 5,
      col: 15,
      new_name: 'one',
    })
    expect(files).toBe(2)
    expect(diff).toContain('-console.log(unit().area())\n+console.log(one().area())')
    expect(diff).toContain('+export const one = (): Shape')
    expect(await agent.ok('read', { file_path: 'shapes.ts' })).toMatchObject({ text: expect.stringContaining('unit') })
    expect(await agent.refused('rename', { file_path: 'shapes.ts', line: 5, col: 15, new_name: 'not a name' })).toMatch(
      /is not a name/,
    )
  }, 90_000)

  it('are started again after they were killed, at most five times in five minutes', async () => {
    const kill = () => agent.ok('bash', { command: "pkill -9 -P $PPID -f '[p]yright-langserver --stdio'", timeout: 10 })
    for (let round = 0; round < 4; round += 1) {
      await kill()
      await expect
        .poll(async () => (await ask('definition', 'use.py', 3, 8).catch(() => ({ places: [] }))).places, {
          timeout: 60_000,
        })
        .toEqual(['sums.py:1:5'])
    }
    await kill()
    await expect
      .poll(() => agent.refused('definition', { file_path: 'use.py', line: 3, col: 8 }).catch(() => ''), {
        timeout: 20_000,
      })
      .toMatch(/exited 5 times within 5 minutes/)
    expect((await ask('definition', 'main.ts', 5, 14)).places).toEqual(['shapes.ts:5:14'])
  }, 180_000)
})
