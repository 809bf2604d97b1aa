/** Sources of apt that lead to the package cache, beside those of the machine. */
import { lstatSync, readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { packageCacheHost } from '../../base/package-cache.ts'
import { link, makeDir, putFile } from './generated-files.ts'

const directory = 'etc/apt/glovebox-cache'

const configuration = `Dir::Etc::sourcelist "/${directory}/sources.list";
Dir::Etc::sourceparts "/${directory}/sources.list.d";
`

/**
 * Writes the sources of an image a second time, with the package cache in place of an archive.
 * @param archive its address. @returns the configuration of apt that makes it use them.
 */
export function writeCachedSources(root: string, archive: string): string {
  const apt = join(root, 'etc/apt')
  const parts = readdirSync(apt).includes('sources.list.d') ? readdirSync(join(apt, 'sources.list.d')) : []
  makeDir(join(root, directory, 'sources.list.d'))
  for (const name of ['sources.list', ...parts.map((part) => join('sources.list.d', part))]) {
    const stat = lstatSync(join(apt, name), { throwIfNoEntry: false })
    const written = join(root, directory, name)
    if (stat?.isSymbolicLink()) link(written, join('/etc/apt', name))
    else if (stat?.isFile()) putFile(written, cachedSources(readFileSync(join(apt, name), 'latin1'), archive))
  }
  return configuration
}

/** Returns sources in which the package cache replaces an archive. @param text of a file in either format of apt. */
export function cachedSources(text: string, archive: string): string {
  const escaped = archive.replace(/\/+$/, '').replace(/[.*+?^${}()|[\]\\]/g, '\\$&')
  return text.replace(new RegExp(`(?<=^|[\\s:])${escaped}/*(?=\\s|$)`, 'gim'), `http://${packageCacheHost}/apt`)
}
