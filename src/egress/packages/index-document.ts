/** Reads the documents of package indexes, and writes those that lead to the cache. Pure functions. */
import { createHash } from 'node:crypto'
import { packageCacheHost } from '../../base/package-cache.ts'

/** What the checksum of a package file is made with. Weaker ones are ignored. */
const algorithms = ['sha512', 'sha384', 'sha256'] as const
export type Algorithm = (typeof algorithms)[number]

export interface Checksum {
  algorithm: Algorithm
  hex: string
}

/** A file that an index lists. */
export interface IndexFile {
  url: string
  /** Absent: the file is passed on, and not kept. */
  checksum?: Checksum
}

/** A document as programs get it, and the files in it by the name at the end of their address. */
export interface ReadIndex<Body = Uint8Array> {
  body: Body
  files: Map<string, IndexFile>
}

const fileNamePattern = /^[A-Za-z0-9][A-Za-z0-9._+!~=-]{0,254}$/

/**
 * BOUNDARY: reads a page of the simple repository API, in HTML or JSON: https://packaging.python.org/en/latest/specifications/simple-repository-api/
 * @param url of the page. @throws Error for anything else.
 */
export function readPipIndex(text: string, isJson: boolean, url: string): ReadIndex<string> {
  const files = new Map<string, IndexFile>()
  const links: string[] = []
  for (const { name, address, checksum, metadata, attributes } of isJson ? inJson(text) : inHtml(text)) {
    const at = httpUrl(address, url)
    if (at === undefined || !fileNamePattern.test(name) || files.has(name)) continue
    files.set(name, { url: at, ...(checksum && { checksum }) })
    const shown = { ...attributes }
    if (metadata !== undefined) {
      const beside = new URL(at)
      beside.pathname += '.metadata'
      files.set(`${name}.metadata`, { url: beside.href, checksum: metadata })
      shown['data-core-metadata'] = `${metadata.algorithm}=${metadata.hex}`
      shown['data-dist-info-metadata'] = shown['data-core-metadata']
    }
    const written = Object.entries(shown).map(([key, value]) => ` ${key}="${escaped(value)}"`)
    const fragment = checksum ? `#${checksum.algorithm}=${checksum.hex}` : ''
    links.push(`<a href="${encodeURIComponent(name)}${fragment}"${written.join('')}>${escaped(name)}</a><br>`)
  }
  const head = '<!DOCTYPE html><html><head><meta name="pypi:repository-version" content="1.0"></head><body>'
  return { body: `${head}\n${links.join('\n')}\n</body></html>\n`, files }
}

interface Link {
  name: string
  address: string
  checksum: Checksum | undefined
  metadata: Checksum | undefined
  attributes: Record<string, string>
}

function inJson(text: string): Link[] {
  const { files } = JSON.parse(text) as { files: Record<string, unknown>[] }
  return files.map((file) => {
    const attributes: Record<string, string> = {}
    if (typeof file['requires-python'] === 'string') attributes['data-requires-python'] = file['requires-python']
    if (file.yanked === true) attributes['data-yanked'] = ''
    else if (typeof file.yanked === 'string') attributes['data-yanked'] = file.yanked
    return {
      ...{ name: String(file.filename), address: String(file.url), attributes },
      checksum: checksumOf(file.hashes),
      metadata: checksumOf(file['core-metadata'] ?? file['dist-info-metadata']),
    }
  })
}

function inHtml(text: string): Link[] {
  const base = /<base\s[^>]*?href\s*=\s*["']([^"'>]*)["']/i.exec(text)?.[1]
  return [...text.matchAll(/<a\s([^>]*)>/gi)].map(([, inner = '']) => {
    const found = new Map<string, string>()
    for (const [, key = '', , quoted, single] of inner.matchAll(/([a-z-]+)(\s*=\s*(?:"([^"]*)"|'([^']*)'))?/gi))
      if (!found.has(key.toLowerCase())) found.set(key.toLowerCase(), unescaped(quoted ?? single ?? ''))
    const href = found.get('href') ?? ''
    const [location = '', fragment = ''] = href.split('#')
    const attributes: Record<string, string> = {}
    for (const key of ['data-requires-python', 'data-yanked']) {
      const value = found.get(key)
      if (value !== undefined) attributes[key] = value
    }
    return {
      name: lastSegment(location),
      address: base !== undefined && URL.canParse(location, base) ? new URL(location, base).href : location,
      checksum: inFragment(fragment),
      metadata: inFragment(found.get('data-core-metadata') ?? found.get('data-dist-info-metadata') ?? ''),
      attributes,
    }
  })
}

function inFragment(text: string): Checksum | undefined {
  const hashes = [...text.matchAll(/(sha\d+)=([0-9a-f]+)/gi)].map(([, key = '', hex]) => [key.toLowerCase(), hex])
  return checksumOf(Object.fromEntries(hashes))
}

/** Returns the strongest of some checksums by algorithm. */
export function checksumOf(hashes: unknown): Checksum | undefined {
  if (typeof hashes !== 'object' || hashes === null) return undefined
  for (const algorithm of algorithms) {
    const hex = String((hashes as Record<string, unknown>)[algorithm] ?? '').toLowerCase()
    if (isDigest(algorithm, hex)) return { algorithm, hex }
  }
  return undefined
}

const isDigest = (algorithm: Algorithm, hex: string): boolean =>
  /^[0-9a-f]+$/.test(hex) && hex.length * 4 === Number(algorithm.slice(3))

/**
 * BOUNDARY: reads a package document of an npm registry: https://github.com/npm/registry/blob/main/docs/REGISTRY-API.md
 * @param url of the document. @throws Error for anything else.
 */
export function readNpmIndex(text: string, name: string, url: string): ReadIndex<string> {
  const files = new Map<string, IndexFile>()
  const document = JSON.parse(text) as { versions?: Record<string, { dist?: Record<string, unknown> }> }
  for (const [version, { dist }] of Object.entries(document.versions ?? {})) {
    const at = httpUrl(String(dist?.tarball), url)
    if (dist === undefined || at === undefined) continue
    let file = lastSegment(at)
    if (files.has(file) || file === '') file = `${version}~${file}`
    const checksum = inIntegrity(String(dist.integrity ?? ''))
    files.set(file, { url: at, ...(checksum && { checksum }) })
    dist.tarball = `http://${packageCacheHost}/npm/${name}/-/${encodeURIComponent(file)}`
  }
  return { body: JSON.stringify(document), files }
}

/** https://www.w3.org/TR/SRI/ */
function inIntegrity(text: string): Checksum | undefined {
  const found = text.split(/\s+/).map((word) => {
    const [, algorithm = '', base64 = ''] = /^(sha\d+)-([A-Za-z0-9+/=]+)/.exec(word) ?? []
    return [algorithm, Buffer.from(base64, 'base64').toString('hex')]
  })
  return checksumOf(Object.fromEntries(found))
}

export const digest = (algorithm: Algorithm, bytes: Uint8Array): string =>
  createHash(algorithm).update(bytes).digest('hex')

function httpUrl(address: string, base: string): string | undefined {
  if (!URL.canParse(address, base)) return undefined
  const url = new URL(address, base)
  url.hash = ''
  return url.protocol === 'https:' || url.protocol === 'http:' ? url.href : undefined
}

function lastSegment(location: string): string {
  const segment = location.split(/[?#]/, 1)[0]!.split('/').at(-1) ?? ''
  try {
    return decodeURIComponent(segment)
  } catch {
    return segment
  }
}

const escaped = (text: string): string =>
  text.replace(/[&<>"]/g, (sign) => ({ '&': '&amp;', '<': '&lt;', '>': '&gt;', '"': '&quot;' })[sign]!)

const entities: Readonly<Record<string, string>> = { amp: '&', lt: '<', gt: '>', quot: '"', apos: "'" }

const unescaped = (text: string): string =>
  text.replace(
    /&(?:#x([0-9a-f]{1,6})|#(\d{1,7})|(amp|lt|gt|quot|apos));/gi,
    (all, hex?: string, number?: string, name?: string) => {
      if (name !== undefined) return entities[name.toLowerCase()]!
      const code = hex === undefined ? Number(number) : Number.parseInt(hex, 16)
      return code <= 0x10_ffff ? String.fromCodePoint(code) : all
    },
  )
