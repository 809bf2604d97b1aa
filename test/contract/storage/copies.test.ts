import { closeSync, ftruncateSync, mkdtempSync, openSync, readFileSync, rmSync, statSync, writeSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { expect, it } from 'vitest'
import { kernel } from '../../../src/kernel/kernel.ts'

it('a copy on a filesystem of another type has the same bytes and holes', async () => {
  const [from, to] = [tmpdir(), '/dev/shm'].map((parent) => mkdtempSync(join(parent, 'glovebox-copy-')))
  try {
    const [source, target] = [join(from!, 'disk'), join(to!, 'disk')]
    const [read, written] = [openSync(source, 'w+'), openSync(target, 'w+')]
    ftruncateSync(read, 20_000_000)
    writeSync(read, Buffer.alloc(200_001, 'x'), 0, 200_001, 7_000_000)
    await kernel.copySparse(read, written)
    expect(readFileSync(target).equals(readFileSync(source))).toBe(true)
    expect(statSync(target).blocks * 512).toBeLessThan(1_000_000)
    closeSync(read)
    closeSync(written)
  } finally {
    for (const directory of [from!, to!]) rmSync(directory, { recursive: true })
  }
})
