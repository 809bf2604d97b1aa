import { readdirSync, readFileSync } from 'node:fs'
import { Marked, Renderer } from 'marked'
import { Refusal } from '../../base/errors.ts'
import { serverGroup } from '../health.ts'
import type { Operation } from '../operation.ts'
import { Html, html, sendPart } from './html.ts'

/** The pages ship with the product. */
const directory = new URL('../../../docs/', import.meta.url)

/** Names of the pages, without `.md`. */
const names: readonly string[] = readdirSync(directory)
  .filter((file) => file.endsWith('.md'))
  .map((file) => file.slice(0, -3))
  .sort()

/** The fragment that links to a heading use, as on GitHub. */
const fragmentOf = (heading: string): string =>
  heading
    .toLowerCase()
    .replaceAll(/[^\p{L}\p{N}\s_-]/gu, '')
    .replaceAll(/\s/g, '-')

/** Returns the address of a linked page; `undefined` for a file that is not served. */
function addressOf(href: string): string | undefined {
  if (/^(?:https?:|#)/.test(href)) return href
  const [, name, fragment = ''] = /^([\w-]+)\.md(#.*)?$/.exec(href) ?? []
  return name !== undefined && names.includes(name) ? `${name}${fragment}` : undefined
}

const tableLabel = 'aria-label="Table"'

/** Renders what is not changed here. */
const defaults = new Renderer()

const marked = new Marked({
  renderer: {
    heading({ tokens, depth, text }) {
      const words = this.parser.parseInline(tokens)
      return `<h${depth} id="${fragmentOf(text.replaceAll(/\[([^\]]*)\]\([^)]*\)|[`*]/g, '$1'))}">${words}</h${depth}>\n`
    },
    link({ href, tokens }) {
      const address = addressOf(href)
      const words = this.parser.parseInline(tokens)
      return address === undefined ? words : `<a href="${address.replaceAll('"', '%22')}">${words}</a>`
    },
    table(token) {
      const own = defaults.table.call(this, token)
      return `<div class="scroll" tabindex="0" role="region" ${tableLabel}>${own}</div>`
    },
    code({ text }) {
      return html`<pre tabindex="0">${text}</pre>`.text
    },
  },
})

const pageOf = (title: string, home: string, content: Html): string =>
  html`<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>${title} – Glovebox</title>
<link rel="stylesheet" href="${home}assets/page.css">
</head>
<body>
<nav aria-label="Documentation"><a href="${home}.">Glovebox</a> · <a href="${home}docs">All pages</a></nav>
<main>${content}</main>
</body>
</html>
`.text

const titleOf = (text: string): string => /^# (.*)$/m.exec(text)?.[1] ?? ''

const read = (name: string): string => readFileSync(new URL(`${name}.md`, directory), 'utf8')

function render(name: string): string {
  const text = read(name)
  let tables = 0
  const content = marked
    .parse(text, { async: false })
    // Screen readers list these regions.
    .replaceAll(tableLabel, () => `aria-label="Table ${++tables}"`)
  return pageOf(titleOf(text), '../', new Html(content))
}

const page = {
  method: 'GET',
  access: 'open',
  capability: null,
  group: serverGroup,
  answers: { 200: { mediaType: 'text/html' } },
} as const

/** The documentation as web pages, the description of every REST operation included. */
export const docsOperations: readonly Operation[] = [
  {
    ...page,
    id: 'docs',
    path: '/docs',
    summary: 'Get the list of the pages of the documentation',
    refusals: [],
    handler: () => {
      const items = names.map((name) => html`<li><a href="docs/${name}">${titleOf(read(name))}</a></li>`)
      const text = pageOf('Documentation', '', html`<h1>Documentation</h1><ul>${items}</ul>`)
      return async (request, reply) => {
        // Links are relative, so that they work below a path of a proxy.
        if (request.url.split('?')[0]!.endsWith('/')) return reply.redirect('../docs', 308)
        return sendPart(reply, 'text/html', text)
      }
    },
  },
  {
    ...page,
    id: 'docsPage',
    path: '/docs/{page}',
    summary: 'Get a page of the documentation',
    refusals: ['not_found'],
    handler: () => {
      /** Rendered when they are first read. */
      const rendered = new Map<string, string>()
      return async (request, reply) => {
        const { page: name } = request.params as { page: string }
        if (!names.includes(name)) throw new Refusal('not_found', { what: `The page ${name.slice(0, 64)}` })
        const content = rendered.get(name) ?? render(name)
        rendered.set(name, content)
        return sendPart(reply, 'text/html', content)
      }
    },
  },
]
