import { expect, it } from 'vitest'
import { Cleanup } from '../../../src/base/cleanup.ts'

it('releases the newest first, continues after failures, and repeats only what failed', async () => {
  const cleanup = new Cleanup()
  const released: string[] = []
  let busy = 2
  for (const name of ['ids', 'cgroup', 'mount'])
    cleanup.add(() => {
      if (name === 'cgroup' && busy-- > 0) throw new Error(`${name} is busy`)
      released.push(name)
    })
  await expect(cleanup.run()).rejects.toMatchObject({ errors: [new Error('cgroup is busy')] })
  expect(released).toEqual(['mount', 'ids'])
  await expect(cleanup.run()).rejects.toThrow('cleaning up failed')
  await cleanup.run()
  await cleanup.run()
  expect(released).toEqual(['mount', 'ids', 'cgroup'])
})
