import { randomBytes } from 'node:crypto'
import { existsSync, mkdtempSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { StartRefused } from '../../../src/base/errors.ts'
import { ensureSecret, openVault, replaceMasterKey } from '../../../src/core/access/master-key.ts'
import { SealBroken, Vault } from '../../../src/core/access/vault.ts'
import { openStore } from '../../../src/store/sqlite.ts'
import type { Store } from '../../../src/store/store.ts'
import { org, plainKey } from '../../support/rows.ts'

let directory: string
let store: Store
const source = () => ({ value: '', file: join(directory, 'master.key') })

beforeEach(async () => {
  directory = mkdtempSync(join(tmpdir(), 'glovebox-vault-'))
  store = await openStore(join(directory, 'glovebox.db'))
})
afterEach(async () => {
  await store.close()
  rmSync(directory, { recursive: true })
})

describe('a sealed value', () => {
  it('opens only in its own place, with its own key, and unmodified', () => {
    const vault = new Vault(randomBytes(32))
    const sealed = vault.seal('keys/key_1/env', 'secret')
    expect(vault.open('keys/key_1/env', sealed)).toBe('secret')
    expect(sealed).not.toBe(vault.seal('keys/key_1/env', 'secret'))
    expect(() => vault.open('keys/key_2/env', sealed)).toThrow(SealBroken)
    expect(() => new Vault(randomBytes(32)).open('keys/key_1/env', sealed)).toThrow(SealBroken)
    const flipped = sealed.slice(0, 20) + (sealed[20] === 'A' ? 'B' : 'A') + sealed.slice(21)
    for (const wrong of [flipped, '', 'v1.', 'v2.abc', sealed.slice(0, 30)]) {
      expect(() => vault.open('keys/key_1/env', wrong)).toThrow(SealBroken)
    }
  })
})

describe('a master key', () => {
  it('is created at the first start, readable by its owner only, and reused later', async () => {
    const sealed = (await openVault(store, source())).seal('p', 'x')
    expect(statSync(source().file).mode & 0o777).toBe(0o600)
    expect((await openVault(store, source())).open('p', sealed)).toBe('x')
  })

  it('stops the start when it is lost, malformed or not the one that was used', async () => {
    await openVault(store, source())
    const good = readFileSync(source().file, 'utf8')
    writeFileSync(source().file, `${randomBytes(32).toString('base64')}\n`)
    await expect(openVault(store, source())).rejects.toThrow('does not match the key')
    writeFileSync(source().file, 'short\n')
    await expect(openVault(store, source())).rejects.toThrow('32 bytes')
    rmSync(source().file)
    await expect(openVault(store, source())).rejects.toThrow('missing')
    expect(existsSync(source().file)).toBe(false)
    expect(await openVault(store, { ...source(), value: good.trim() })).toBeInstanceOf(Vault)
    await expect(openVault(store, { ...source(), value: randomBytes(32).toString('base64') })).rejects.toThrow(
      'does not match the key',
    )
  })

  it('stops the start when it cannot be created, and names the required owner', async () => {
    const nowhere = { value: '', file: join(directory, 'missing', 'master.key') }
    await expect(openVault(store, nowhere)).rejects.toThrow(StartRefused)
    await expect(openVault(store, nowhere)).rejects.toMatchObject({ remedy: expect.stringContaining('front_uid') })
  })

  it('is replaced together with all sealed values', async () => {
    const before = await openVault(store, source())
    await store.orgs.ensure(org)
    await store.keys.ensure({ ...plainKey, env: before.seal(`keys/${plainKey.id}/env`, '{"A":"b"}') })
    const secret = await ensureSecret(store, before, 'one', 'value')
    await replaceMasterKey(store, source())
    const after = await openVault(store, source())
    expect(await ensureSecret(store, after, 'one', 'other')).toBe(secret)
    expect(after.open(`keys/${plainKey.id}/env`, (await store.keys.get(plainKey.id))?.env ?? '')).toBe('{"A":"b"}')
    expect(existsSync(`${source().file}.next`)).toBe(false)
  })

  it('matches the rows after a crash during replacement', async () => {
    await openVault(store, source())
    const old = readFileSync(source().file, 'utf8')
    // Before the rows: the new key exists and nothing is sealed with it.
    writeFileSync(`${source().file}.next`, `${randomBytes(32).toString('base64')}\n`)
    await openVault(store, source())
    expect(existsSync(`${source().file}.next`)).toBe(false)
    // After the rows: they are sealed with the new key, and the old one is still in place.
    await replaceMasterKey(store, source())
    writeFileSync(`${source().file}.next`, readFileSync(source().file))
    writeFileSync(source().file, old)
    await openVault(store, source())
    expect(readFileSync(source().file, 'utf8')).not.toBe(old)
  })
})
