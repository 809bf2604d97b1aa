import type { UpstreamSecrets } from './secrets.ts'

const redacted = '[redacted]'

/**
 * Replaces the secrets of an upstream in a text that it sent, also in their URL-encoded and base64 forms. Values of fewer
 * than 4 characters are not replaced.
 */
export function redactSecrets(text: string, { secrets }: { secrets: UpstreamSecrets }): string {
  const { headers, credential, env = {} } = secrets
  const values = [...Object.values(headers), ...(credential?.values ?? []), ...Object.values(env)]
  let clean = text
  for (const value of values.filter(({ length }) => length >= 4)) {
    const base64 = Buffer.from(value).toString('base64')
    for (const form of [value, encodeURIComponent(value), base64, base64.replaceAll('=', '')]) {
      clean = clean.replaceAll(form, redacted)
    }
  }
  return clean
}
