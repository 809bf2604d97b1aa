/** Sources of apt that lead to the package cache. */
import { mkdirSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { cachedSources, writeCachedSources } from '../../../src/engine/images/cached-sources.ts'

const archive = 'http://archive.example/debian/'
const cache = 'http://packages.glovebox.internal/apt'
let root: string
beforeEach(() => {
  root = mkdtempSync(join(tmpdir(), 'glovebox-sources-'))
})
afterEach(() => rmSync(root, { recursive: true }))

describe('sources for the package cache', () => {
  it('name it in place of the archive, in both formats, and keep everything else', () => {
    const text = `Types: deb
URIs: http://archive.example/debian http://archive.example/debian-security
Suites: stable
Signed-By: /usr/share/keyrings/a.gpg

deb [arch=amd64] http://archive.example/debian/ stable main
deb http://archive.example/debian/more stable main
deb http://archive-example/debian stable main
URIs:HTTP://Archive.example/debian
`
    expect(cachedSources(text, archive)).toBe(`Types: deb
URIs: ${cache} http://archive.example/debian-security
Suites: stable
Signed-By: /usr/share/keyrings/a.gpg

deb [arch=amd64] ${cache} stable main
deb http://archive.example/debian/more stable main
deb http://archive-example/debian stable main
URIs:${cache}
`)
  })

  it('are written beside those of the image', () => {
    const parts = join(root, 'etc/apt/sources.list.d')
    mkdirSync(parts, { recursive: true })
    const source = `deb ${archive} stable main\n`
    writeFileSync(join(parts, 'a.list'), source)
    symlinkSync('../other', join(parts, 'b.list'))
    const configuration = writeCachedSources(root, archive)
    expect(configuration).toContain('Dir::Etc::sourceparts "/etc/apt/glovebox-cache/sources.list.d"')
    const written = join(root, 'etc/apt/glovebox-cache/sources.list.d/a.list')
    expect(readFileSync(written, 'utf8')).toBe(`deb ${cache} stable main\n`)
    expect(readFileSync(join(parts, 'a.list'), 'utf8')).toBe(source)
  })

  it('are none for an image without apt', () => {
    mkdirSync(join(root, 'etc/apt'), { recursive: true })
    expect(writeCachedSources(root, archive)).toContain('sourcelist')
  })
})
