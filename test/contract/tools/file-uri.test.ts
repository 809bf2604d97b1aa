import { describe, expect, it } from 'vitest'
import { fileUri, readFileUri } from '../../../src/tools/files/file-uri.ts'

describe('the URI of a file', () => {
  it('names any path of any thread, and is parsed back to it', () => {
    for (const path of ['a.txt', 'out/b c.png', 'ü/%41?#.txt', '日本/ö', 'a%2Fb'])
      expect(readFileUri(fileUri('t-1', path))).toEqual({ threadId: 't-1', path })
  })

  it('is readable for a plain path', () => {
    expect(fileUri('notes', 'out/plot.png')).toBe('glovebox://threads/notes/files/out/plot.png')
  })

  it('is parsed from nothing else', () => {
    for (const uri of [
      '',
      'file:///etc/passwd',
      'glovebox://threads/a',
      'glovebox://threads//files/x',
      fileUri('a', ''),
    ])
      expect(readFileUri(uri)).toBeUndefined()
    expect(readFileUri('glovebox://threads/a/files/%E0%A4%A')).toBeUndefined()
  })
})
