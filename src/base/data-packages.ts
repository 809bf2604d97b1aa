import { readFileSync } from 'node:fs'

/** Returns the Debian packages of the image `data`; they depend on others. */
export function dataPackages(): string[] {
  const text = readFileSync(new URL('../../guest/images/data-packages.txt', import.meta.url), 'utf8')
  return text.split('\n').flatMap((line) => line.replace(/#.*/, '').trim() || [])
}
