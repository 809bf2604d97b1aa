import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterEach, describe, expect, it } from 'vitest'
import { openInstance } from '../../../src/base/instance.ts'

const homes: string[] = []
afterEach(() => {
  for (const home of homes.splice(0)) rmSync(home, { recursive: true })
})

function newHome(): string {
  const home = mkdtempSync(join(tmpdir(), 'glovebox-instance-'))
  homes.push(home)
  return home
}

describe('the ID of an instance', () => {
  it('is created once, and no unfinished file remains', () => {
    const home = newHome()
    const { id } = openInstance(home, '/run/none')
    expect(openInstance(home, '/run/none').id).toBe(id)
    expect(readdirSync(home)).toEqual(['instance'])
  })

  it.each([
    ['is empty', ''],
    ['contains only zeros', '\0'.repeat(9)],
  ])('is created again when a power cut left a file that %s', (_, content) => {
    const home = newHome()
    writeFileSync(join(home, 'instance'), content)
    const { id } = openInstance(home, '/run/none')
    expect(readFileSync(join(home, 'instance'), 'utf8')).toBe(`${id}\n`)
  })

  it('is never replaced when the file contains something else', () => {
    const home = newHome()
    writeFileSync(join(home, 'instance'), 'other')
    expect(() => openInstance(home, '/run/none')).toThrow('does not contain an instance id')
  })
})
