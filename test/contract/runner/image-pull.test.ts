import { execFileSync } from 'node:child_process'
import { randomBytes } from 'node:crypto'
import { existsSync, mkdirSync, readdirSync, readFileSync, readlinkSync } from 'node:fs'
import { join } from 'node:path'
import { gzipSync } from 'node:zlib'
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest'
import type { ImageProgress } from '../../../src/base/image.ts'
import { pullerCommand } from '../../../src/cli/unprivileged-command.ts'
import { archive, type Entry } from '../../support/archives.ts'
import { unpackDebian } from '../../support/debian-packages.ts'
import { type DebianRegistry, openDebianRegistry } from '../../support/debian-registry.ts'
import { type ImageRoom, openImageRoom } from '../../support/image-fixture.ts'
import { inPrivateMounts } from '../../support/private-mounts.ts'
import { type Layer, openRegistry, type TestRegistry } from '../../support/test-registry.ts'

const busybox = await unpackDebian('busybox-static')
const hasDebian = busybox !== undefined && (await unpackDebian('docker-registry')) !== undefined
// Outside of the private mounts, so that the report counts it.
if (!hasDebian) it.skip('an image from the registry of Debian: its package cannot be had', () => undefined)

inPrivateMounts(import.meta.filename, () => {
  let debian: DebianRegistry | undefined
  let room: ImageRoom
  let server: TestRegistry

  beforeAll(async () => {
    server = await openRegistry()
    debian = hasDebian ? await openDebianRegistry() : undefined
    room = await openImageRoom((dir) => {
      const frontProgram = join(dir, 'program')
      mkdirSync(frontProgram)
      const instance = { id: 'images', stateDir: dir, socketPath: '', frontHome: '', frontProgram }
      return {
        registries: {
          [server.host]: `http://user:secret@${server.host}`,
          ...(debian && { [debian.host]: `http://${debian.host}` }),
        },
        pullerCommand: (uid) => pullerCommand(uid, instance),
      }
    })
  })

  beforeEach(async () => {
    await room.images.collect()
    server.requests.length = 0
    server.misbehave = () => false
  })

  afterAll(async () => {
    await server.close()
    await debian?.close()
    expect(await room.close()).toEqual([])
  })

  const layer = (...entries: Entry[]): Layer => {
    const plain = archive(...entries)
    return { plain, bytes: gzipSync(plain) }
  }
  /** One that does not become smaller by compression. */
  const large = (): Layer => {
    const plain = archive({ name: 'large', content: randomBytes(3_000_000) })
    return { plain, bytes: plain }
  }
  const pull = (tag: string, progress: (progress: ImageProgress) => void = () => undefined) =>
    room.images.change({ kind: 'pull', name: `${server.host}/own:${tag}` }, progress, new AbortController().signal)
  const refusal = (pulled: Promise<unknown>) =>
    pulled.then(
      () => 'accepted',
      (error: Error) => error.message,
    )
  const blobRequests = () => server.requests.filter((request) => request.includes('/blobs/'))

  describe('an image from a registry', () => {
    it('is pulled with a login, and its layers are applied with their whiteouts', async () => {
      const base = layer(
        ...['kept', 'removed', 'linked', 'dir/old', 'dir/below/old', 'other/old'].map((name) => ({
          name,
          content: name,
        })),
      )
      const upper = layer(
        { name: '.wh.removed', content: '' },
        { name: '.wh.linked', type: '1', link: 'kept' },
        { name: 'dir/new', content: 'new' },
        { name: 'dir/.wh..wh..opq', content: '' },
        { name: 'other/.wh.missing', content: '' },
        { name: 'removed-dir', type: '5' },
      )
      server.login = 'user:secret'
      const digest = server.image('1', [base, upper], {
        Env: ['PATH=/opt/bin', 'X=1'],
        User: 'app',
        WorkingDir: '/srv',
      })
      const record = await pull('1')
      server.login = undefined
      expect(record).toMatchObject({ digest, config: { env: { X: '1' }, user: 'app', workdir: '/srv' } })
      const used = await room.images.use(record)
      const root = used.mounted.path
      expect(readdirSync(root).toSorted()).toEqual(['dir', 'kept', 'other', 'removed-dir'])
      expect(readdirSync(join(root, 'dir'))).toEqual(['new'])
      expect(readFileSync(join(root, 'other/old'), 'utf8')).toBe('other/old')
      used.release()
    })

    it.runIf(hasDebian)('comes from the registry of Debian with a package of Debian', async () => {
      const plain = execFileSync('tar', ['--create', '--owner=0', '--group=0', '--directory', busybox!, '.'], {
        maxBuffer: 64 * 1024 * 1024,
      })
      const below = layer(
        ...['opaque/old', 'opaque/below/old', 'linked', 'kept'].map((name) => ({ name, content: name })),
      )
      const links = layer(
        { name: 'own', type: '2', link: 'bin/busybox' },
        { name: 'usr/.wh.share', content: '' },
        { name: '.wh.linked', type: '1', link: 'kept' },
        { name: 'opaque/.wh..wh..opq', type: '1', link: 'kept' },
        { name: 'opaque/new', content: 'new' },
        { name: 'outside', type: '2', link: room.dir },
        { name: 'outside/through', content: 'inside' },
        { name: 'hard', type: '1', link: '/kept' },
        { name: 'disk', type: '4' },
        { name: 'terminal', type: '3' },
      )
      const layers = [{ plain, bytes: gzipSync(plain) }, below, links]
      const digest = await debian!.push('1', layers, { Env: ['FROM=debian'] })
      const name = `${debian!.host}/own:1@${digest}`
      const record = await room.images.change({ kind: 'pull', name }, () => undefined, new AbortController().signal)
      expect(record).toMatchObject({ digest, config: { env: { FROM: 'debian' } } })
      const used = await room.images.use(record)
      const content = (root: string) => readFileSync(join(root, 'bin/busybox'))
      expect(content(used.mounted.path).equals(content(busybox!))).toBe(true)
      expect(readlinkSync(join(used.mounted.path, 'own'))).toBe('bin/busybox')
      const has = (name: string) => existsSync(join(used.mounted.path, name))
      expect(['usr/share', 'linked', 'disk', 'terminal'].filter(has)).toEqual([])
      expect(readdirSync(join(used.mounted.path, 'opaque'))).toEqual(['new'])
      expect(readFileSync(join(used.mounted.path, 'hard'), 'utf8')).toBe('kept')
      // The absolute link leads to a place of the same name inside the image.
      expect(readlinkSync(join(used.mounted.path, 'outside'))).toBe(room.dir)
      expect([has(`${room.dir}/through`), existsSync(join(room.dir, 'through'))]).toEqual([true, false])
      used.release()
    })

    it('shares layers with others: a stored layer is not downloaded again', async () => {
      const base = layer({ name: 'shared', content: 'shared' })
      server.image('2', [base, layer({ name: 'a', content: 'a' })])
      server.image('3', [base, layer({ name: 'b', content: 'b' })])
      await pull('2')
      server.requests.length = 0
      const record = await pull('3')
      expect(blobRequests()).toHaveLength(2) // Its configuration and its own layer.
      expect((await room.images.collect()).layers).toBe(0)
      await room.images.remove(`${server.host}/own:2`)
      expect((await room.images.collect()).layers).toBe(1)
      const used = await room.images.use(record)
      expect(existsSync(join(used.mounted.path, 'shared'))).toBe(true)
      used.release()
    })

    it('is refused if a layer has another digest than the manifest or the configuration says', async () => {
      const lie = layer({ name: 'a', content: 'a' })
      server.image('4', [lie])
      server.misbehave = (_, response, blob) => {
        if (!blob.equals(lie.bytes)) return false
        response.writeHead(200).end(Buffer.concat([blob.subarray(0, -1), Buffer.of(7)]))
        return true
      }
      expect(await refusal(pull('4'))).toContain('is not what its digest says')
      server.misbehave = () => false
      server.image('5', [{ bytes: lie.bytes, plain: Buffer.from('another') }])
      expect(await refusal(pull('5'))).toContain('is not the layer of its configuration')
      expect(room.images.list().flatMap(({ names }) => names)).not.toContain(`${server.host}/own:5`)
    })

    it('is refused when the registry sends more than the manifest says, without storing it', async () => {
      server.image('6', [large()])
      server.misbehave = (_, response, blob) => {
        if (blob.length < 1_000_000) return false
        response.writeHead(200)
        const more = () => {
          while (response.write(Buffer.alloc(64 * 1024)));
        }
        response.on('drain', more)
        more()
        return true
      }
      expect(await refusal(pull('6'))).toContain('more than')
      expect(readdirSync(join(room.dir, 'images/partial'))).toEqual([])
    })

    it('continues in the middle of a layer after an interruption, beside which nothing of it is collected', async () => {
      const bytes = large()
      server.image('7', [bytes])
      server.misbehave = (request, response, blob) => {
        if (!blob.equals(bytes.bytes) || request.headers.range !== undefined) return false
        response.writeHead(200, { 'content-length': blob.length })
        response.write(blob.subarray(0, 1_000_000), () => setTimeout(() => response.destroy(), 300))
        return true
      }
      let collected: Promise<{ layers: number }> | undefined
      const progress = ({ step, done }: ImageProgress) => {
        if (step === 'pulling' && done > 500_000) collected ??= room.images.collect()
      }
      expect(await refusal(pull('7', progress))).toContain('could not provide')
      expect((await collected)?.layers).toBe(0)
      server.requests.length = 0
      await pull('7')
      const resumed = blobRequests().find((request) => request.includes('bytes='))
      expect(Number(/bytes=(\d+)-/.exec(resumed ?? '')?.[1])).toBeGreaterThan(500_000)
    })

    it('is pulled from a slow registry, with progress while a layer arrives', async () => {
      const bytes = large()
      server.image('9', [bytes])
      let arrivedBytes = 0
      // The next piece is sent when the arrival of the one before was reported.
      server.misbehave = (_, response, blob) => {
        if (!blob.equals(bytes.bytes)) return false
        response.writeHead(200, { 'content-length': blob.length })
        const send = async () => {
          for (let at = 0; at < blob.length; at += 500_000) {
            await expect.poll(() => arrivedBytes, { timeout: 20_000 }).toBeGreaterThanOrEqual(at)
            response.write(blob.subarray(at, at + 500_000))
          }
          response.end()
        }
        void send()
        return true
      }
      const reported: ImageProgress[] = []
      const record = await pull('9', (progress) => {
        if (progress.step !== 'pulling') return
        reported.push(progress)
        arrivedBytes = progress.done
      })
      expect(record.layers).toHaveLength(1)
      expect(new Set(reported.map(({ total }) => total))).toEqual(new Set([bytes.bytes.length]))
      expect(reported.map(({ done }) => done)).toEqual(reported.map(({ done }) => done).toSorted((a, b) => a - b))
      expect(new Set(reported.map(({ done }) => Math.floor(done / 500_000))).size).toBeGreaterThanOrEqual(6)
    })

    it('is refused if the registry does not have it, and from a registry that is not public and not configured', async () => {
      expect(await refusal(pull('missing'))).toContain('it does not have the image')
      const other = await openRegistry()
      const name = `${other.host}/own:1`
      const change = room.images.change({ kind: 'pull', name }, () => undefined, new AbortController().signal)
      expect(await refusal(change)).toContain('could not provide')
      expect(other.requests).toEqual([])
      await other.close()
    })

    it('stops when its change is stopped, and can be pulled later', async () => {
      const bytes = large()
      server.image('8', [bytes])
      const controller = new AbortController()
      server.misbehave = (_, response, blob) => {
        if (!blob.equals(bytes.bytes)) return false
        response
          .writeHead(200, { 'content-length': blob.length })
          .write(blob.subarray(0, 1_000), () => controller.abort(new Error('stopped')))
        return true
      }
      const change = { kind: 'pull', name: `${server.host}/own:8` } as const
      expect(await refusal(room.images.change(change, () => undefined, controller.signal))).toBe('stopped')
      server.misbehave = () => false
      expect((await pull('8')).layers).toHaveLength(1)
    })
  })
})
