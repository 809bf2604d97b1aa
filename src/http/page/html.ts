import { readFileSync } from 'node:fs'
import type { FastifyReply } from 'fastify'

/**
 * Only files of this server run on the page, and no other site can show it in a frame:
 * https://developer.mozilla.org/docs/Web/HTTP/Guides/CSP
 */
const contentSecurityPolicy = [
  "default-src 'none'",
  "script-src 'self'",
  "style-src 'self'",
  "connect-src 'self'",
  'img-src data:',
  "form-action 'none'",
  "base-uri 'none'",
  "frame-ancestors 'none'",
].join('; ')

/** A text that is safe in HTML. */
export class Html {
  readonly text: string

  constructor(text: string) {
    this.text = text
  }
}

const escapes: Readonly<Record<string, string>> = {
  '&': '&amp;',
  '<': '&lt;',
  '>': '&gt;',
  '"': '&quot;',
  "'": '&#39;',
}
const escapeText = (text: string): string => text.replaceAll(/[&<>"']/g, (character) => escapes[character]!)

/** Builds HTML; every value is escaped unless it is HTML itself. */
export function html(parts: TemplateStringsArray, ...values: readonly (string | Html | readonly Html[])[]): Html {
  const written = values.map((value) => {
    if (typeof value === 'string') return escapeText(value)
    return value instanceof Html ? value.text : value.map(({ text }) => text).join('')
  })
  return new Html(String.raw({ raw: parts }, ...written))
}

/** Loaded once: the files do not change while the server runs. */
export const asset = (name: string): Buffer => readFileSync(new URL(name, import.meta.url))

export function sendPart(reply: FastifyReply, mediaType: string, body: Buffer | string): FastifyReply {
  return reply
    .code(200)
    .headers({
      'content-type': `${mediaType}; charset=utf-8`,
      'content-security-policy': contentSecurityPolicy,
      'referrer-policy': 'no-referrer',
    })
    .send(body)
}
