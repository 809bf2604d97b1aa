/** Layers for tests: tar archives with any header, also those that no tool writes. */

export interface Entry {
  name: string
  /** The type flag of ustar. */
  type?: '0' | '1' | '2' | '3' | '4' | '5' | '6'
  content?: string | Buffer
  link?: string
  mode?: number
  uid?: number
  gid?: number
  /** Size in the header, if it is not that of the content. */
  size?: number
}

const blockBytes = 512

/** Returns an archive with these entries. */
export function archive(...entries: readonly Entry[]): Buffer {
  return Buffer.concat([...entries.flatMap(blocksOf), Buffer.alloc(2 * blockBytes)])
}

/** https://www.gnu.org/software/tar/manual/html_node/Standard.html */
function blocksOf({ name, type = '0', content = '', link = '', mode, uid = 0, gid = 0, size }: Entry): Buffer[] {
  const bytes = Buffer.from(content)
  const header = Buffer.alloc(blockBytes)
  const octal = (value: number, at: number, digits: number) =>
    header.write(`${value.toString(8).padStart(digits, '0')}\0`, at, 'latin1')
  header.write(name, 0, 100, 'utf8')
  octal(mode ?? (type === '5' ? 0o755 : 0o644), 100, 7)
  octal(uid, 108, 7)
  octal(gid, 116, 7)
  octal(size ?? bytes.length, 124, 11)
  octal(1_700_000_000, 136, 11)
  header.write('        ', 148, 'latin1')
  header.write(type, 156, 'latin1')
  header.write(link, 157, 100, 'utf8')
  header.write('ustar\x0000', 257, 'latin1')
  header.write(
    `${header
      .reduce((sum, byte) => sum + byte, 0)
      .toString(8)
      .padStart(6, '0')}\0 `,
    148,
    'latin1',
  )
  return [header, bytes, Buffer.alloc((blockBytes - (bytes.length % blockBytes)) % blockBytes)]
}
