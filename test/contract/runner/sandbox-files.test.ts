import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { Refusal } from '../../../src/base/errors.ts'
import type { SandboxSpec } from '../../../src/base/sandbox.ts'
import type { RunnerClient } from '../../../src/runner/client/client.ts'
import { inPrivateMounts } from '../../support/private-mounts.ts'
import { execute, type SandboxRunner, sandboxRunner, sandboxSpec } from '../../support/sandbox-runner.ts'

inPrivateMounts(import.meta.filename, () => {
  describe('the files of a sandbox', () => {
    let runner: SandboxRunner
    let client: RunnerClient
    let spec: SandboxSpec
    let id: string

    beforeAll(async () => {
      runner = await sandboxRunner({ slotsReady: 0 })
      client = runner.client
      spec = sandboxSpec()
      id = spec.sandboxId
      await client.sandboxes.start(spec)
    }, 120_000)
    afterAll(async () => {
      expect(await runner.close()).toEqual([])
    })

    const bytes = (text: string) => [Buffer.from(text)]
    async function read(path: string, range?: { offset: number; lengthBytes: number }, user?: string): Promise<string> {
      const file = await client.sandboxes.files.read(id, path, range, user)
      const parts: Uint8Array[] = []
      for await (const part of file.bytes) parts.push(part)
      return Buffer.concat(parts).toString()
    }

    it('are written whole or appended to, keep their mode, and belong to the user', async () => {
      const { files } = client.sandboxes
      expect(await files.write(id, 'a.txt', bytes('hello'), {})).toBe(5)
      await execute(client, id, ['chmod', '640', 'a.txt'])
      await files.write(id, '/home/baponi/a.txt', bytes('more'), {})
      await files.write(id, 'a.txt', bytes('+x'), { append: true })
      expect(await read('a.txt')).toBe('more+x')
      expect(await read('a.txt', { offset: 1, lengthBytes: 3 })).toBe('ore')
      expect(await files.stat(id, 'a.txt')).toMatchObject({ kind: 'file', mode: 0o640, uid: 1000, sizeBytes: 6 })
      await expect(files.write(id, 'd/e', bytes('x'), {})).rejects.toMatchObject({ code: 'path_not_found' })
      await files.write(id, 'd/e', bytes('x'), { makeParents: true, mode: 0o600 })
      expect(await files.stat(id, 'd/e')).toMatchObject({ mode: 0o600 })
      await expect(files.write(id, '/etc/new', bytes('x'), {})).rejects.toMatchObject({ code: 'path_denied' })
      await files.write(id, '/etc/new', bytes('x'), {}, 'root')
      expect(await files.stat(id, '/etc/new')).toMatchObject({ uid: 0 })
    })

    it('are listed in pages, moved, copied and removed', async () => {
      const { files } = client.sandboxes
      await execute(client, id, ['bash', '-c', 'mkdir -p many; cd many; touch {0001..1100}; mkfifo fifo; ln -s x lnk'])
      const names: string[] = []
      let cursor: string | undefined
      do {
        const page = await files.list(id, 'many', { limit: 1_000, ...(cursor !== undefined && { cursor }) })
        names.push(...page.entries.map(({ name }) => name))
        cursor = page.cursor
      } while (cursor !== undefined)
      expect([names.length, new Set(names).size]).toEqual([1_102, 1_102])
      expect(await files.stat(id, 'many/lnk')).toMatchObject({ kind: 'link', target: 'x' })
      await expect(read('many/fifo')).rejects.toMatchObject({ code: 'not_a_file' })
      await expect(read('many')).rejects.toMatchObject({ code: 'not_a_file' })
      await expect(files.copy(id, 'many', 'many/in', false)).rejects.toMatchObject({ code: 'path_invalid' })
      await files.makeDirectory(id, 'm/n', { parents: true })
      await files.write(id, 'm/b', bytes('b'), {})
      await files.copy(id, 'm', 'm2', false)
      await expect(files.copy(id, 'm', 'm2', false)).rejects.toMatchObject({
        code: 'path_exists',
        details: { path: 'm2' },
      })
      // Another filesystem of the sandbox.
      await files.move(id, 'm2', '/tmp/m2', false)
      expect(await read('/tmp/m2/b')).toBe('b')
      await expect(files.stat(id, 'm2')).rejects.toMatchObject({ code: 'path_not_found' })
      await expect(files.remove(id, 'm', false)).rejects.toMatchObject({ code: 'directory_not_empty' })
      await files.remove(id, 'm', true)
      await files.remove(id, 'many', true)
      await expect(files.stat(id, 'many')).rejects.toMatchObject({ code: 'path_not_found' })
    })

    it('are read whole when the kernel makes their content on reading, and refused when they cannot be read', async () => {
      expect(await client.sandboxes.files.stat(id, '/proc/version')).toMatchObject({ sizeBytes: 0 })
      expect(await read('/proc/version')).toMatch(/^Linux version .+\n$/)
      await expect(read('/proc/self/mem', undefined, 'root')).rejects.toMatchObject({
        code: 'path_invalid',
        details: { problem: 'cannot be read or written: the kernel answered EIO' },
      })
    })

    it('report their changes', async () => {
      const watch = await client.sandboxes.files.watch(id, '.', true)
      await execute(client, id, ['bash', '-c', 'echo 1 > w1; mv w1 w2; rm w2'])
      const seen: string[] = []
      for await (const { kind, path } of watch) {
        if (kind !== 'changed') seen.push(`${kind} ${path}`)
        if (kind === 'deleted') break
      }
      expect(seen).toEqual(['created w1', 'moved_from w1', 'moved_to w2', 'deleted w2'])
      await expect(client.sandboxes.files.watch(id, 'nope', false)).rejects.toMatchObject({ code: 'path_not_found' })
    })

    it('do not exceed the quota of the disk, which leaves what was there', async () => {
      const { files } = client.sandboxes
      await files.write(id, 'kept', bytes('kept'), {})
      const piece = Buffer.alloc(1024 * 1024, 7)
      async function* tooMuch() {
        for (let sent = 0; sent < 80; sent++) yield piece
      }
      await expect(files.write(id, 'kept', tooMuch(), {})).rejects.toMatchObject({ code: 'storage_full' })
      expect(await read('kept')).toBe('kept')
    })

    it('lead nowhere through links, and refuse what no path can be', async () => {
      const { files } = client.sandboxes
      await execute(client, id, ['ln', '-s', '/../../../../dock', 'out'])
      await expect(files.list(id, 'out/', { limit: 10 })).rejects.toMatchObject({ code: 'path_not_found' })
      for (const path of ['', 'a\0b', 'x'.repeat(5_000)])
        await expect(files.stat(id, path), path.slice(0, 4)).rejects.toMatchObject({ code: 'path_invalid' })
    })

    it('can be used while it is stopped, when they were opened', async () => {
      const { files } = client.sandboxes
      await client.sandboxes.stop(id, 0)
      await expect(files.stat(id, 'kept')).rejects.toMatchObject({ code: 'sandbox_not_running' })
      await client.sandboxes.openFiles(spec)
      expect(await read('kept')).toBe('kept')
      expect(await client.sandboxes.list()).toEqual([])
      await expect(client.sandboxes.processes.start(id, { argv: ['true'] })).rejects.toMatchObject({
        code: 'sandbox_not_running',
      })
      // With settings that it did not have when its files were opened.
      await client.sandboxes.start({ ...spec, env: { NEW: 'setting' } })
      expect((await execute(client, id, ['sh', '-c', 'cat kept; echo $NEW'])).stdout).toBe('keptsetting\n')
    })

    it('on volumes are shared by sandboxes that run at once, and not changed where they are read-only', async () => {
      const quota = { bytes: 16 * 1024 * 1024, inodes: 200 }
      const volume = (slug: string, readOnly: boolean) => ({ slug, name: 'vol_shared', readOnly, quota })
      const [writer, other, reader] = [
        sandboxSpec({ volumes: [volume('data', false)] }),
        sandboxSpec({ volumes: [volume('data', false)] }),
        // The same volume under another name.
        sandboxSpec({ volumes: [volume('a-b_c.9', true)] }),
      ]
      for (const each of [writer, other, reader]) await client.sandboxes.start(each)
      const run = async (of: SandboxSpec, line: string) => {
        const { stdout, stderr } = await execute(client, of.sandboxId, ['sh', '-c', line])
        return stdout + stderr
      }
      await run(writer, 'echo one > /volumes/data/file')
      expect(await run(other, 'cat /volumes/data/file; echo two >> /volumes/data/file')).toBe('one\n')
      expect(await run(reader, 'cat /volumes/a-b_c.9/file')).toBe('one\ntwo\n')
      expect(await run(reader, 'echo no > /volumes/a-b_c.9/file')).toContain('Read-only file system')
      const { files } = client.sandboxes
      await expect(files.write(reader.sandboxId, '/volumes/a-b_c.9/x', bytes('x'), {})).rejects.toBeInstanceOf(Refusal)
      expect(await files.write(writer.sandboxId, '/volumes/data/x', bytes('x'), {})).toBe(1)
      expect(await run(reader, 'cat /volumes/a-b_c.9/x; ls /volumes')).toBe('xa-b_c.9\n')
      await client.sandboxes.remove('org_a', writer.sandboxId)
      expect(await run(other, 'cat /volumes/data/file')).toBe('one\ntwo\n')
      for (const { sandboxId } of [other, reader]) await client.sandboxes.remove('org_a', sandboxId)
    })
  })
})
