import { Refusal } from '../../base/errors.ts'
import { bytesInWords } from '../execute/ending-words.ts'
import type { ResourceTemplate } from '../resource.ts'
import { inlineMaxBytes, toResource } from './file-content.ts'
import { fileUriTemplate, readFileUri } from './file-uri.ts'
import { filesDownload, readAll } from './files-download.ts'

/** A file that a run wrote in its thread; results link to it. */
export const fileResource: ResourceTemplate = {
  tool: filesDownload.name,
  listing: {
    uriTemplate: fileUriTemplate,
    name: 'thread_file',
    title: 'A file of a thread',
    description: `A file in the home directory of a thread, at most ${bytesInWords(inlineMaxBytes)}.`,
    mimeType: 'application/octet-stream',
  },
  read: async (caller, uri, { core }) => {
    const named = readFileUri(uri)
    if (named === undefined) return undefined
    const file = await core.files.open(caller, { source: 'thread', id: named.threadId, path: named.path })
    if (file.lengthBytes > inlineMaxBytes) {
      file.stop()
      throw new Refusal('resource_too_large', { uri, bytes: file.lengthBytes, limitBytes: inlineMaxBytes })
    }
    return [toResource(uri, await readAll(file))]
  },
}
