import type { ResourceContents } from '../../src/tools/content.ts'
import type { Resource, ResourceTemplate } from '../../src/tools/resource.ts'
import { png } from './fixture-tool.ts'

const fixed = (contents: ResourceContents): Resource => ({
  listing: () => ({
    uri: contents.uri,
    name: contents.uri.replace('test://', ''),
    title: contents.uri,
    description: contents.uri,
    mimeType: contents.mimeType,
  }),
  read: async () => [contents],
})

export const resources: readonly Resource[] = [
  fixed({
    uri: 'test://static-text',
    mimeType: 'text/plain',
    text: 'This is the content of the static text resource.',
  }),
  fixed({ uri: 'test://static-binary', mimeType: 'image/png', blob: png }),
  fixed({ uri: 'test://watched-resource', mimeType: 'text/plain', text: 'Watched resource content' }),
]

export const templates: readonly ResourceTemplate[] = [
  {
    listing: {
      uriTemplate: 'test://template/{id}/data',
      name: 'template',
      title: 'Template',
      description: 'A resource for each id',
      mimeType: 'application/json',
    },
    read: async (_caller, uri) => {
      const [, id] = /^test:\/\/template\/([^/]+)\/data$/.exec(uri) ?? []
      if (id === undefined) return undefined
      return [
        {
          uri,
          mimeType: 'application/json',
          text: JSON.stringify({ id, templateTest: true, data: `Data for ID: ${id}` }),
        },
      ]
    },
  },
]
