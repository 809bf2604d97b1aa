import { execFileSync } from 'node:child_process'
import { readFileSync } from 'node:fs'
import { createRequire } from 'node:module'
import { type Browser, chromium, type Page } from 'playwright-core'

/** The browser of Debian; `undefined` where it is not installed. */
export const chromiumPath = ((): string | undefined => {
  try {
    return execFileSync('sh', ['-c', 'command -v chromium'], { encoding: 'utf8' }).trim()
  } catch {
    return undefined
  }
})()

/** Root runs it without its own sandbox; it loads pages of this machine alone. */
export const openBrowser = (): Promise<Browser> =>
  chromium.launch({ executablePath: chromiumPath!, args: ['--no-sandbox', '--disable-dev-shm-usage'] })

const axeSource = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8')

interface AxeResults {
  violations: { id: string; nodes: { html: string; failureSummary?: string }[] }[]
}

/** Returns what is not accessible on a page, by the rules of WCAG 2.2 AA and good practice: https://github.com/dequelabs/axe-core */
export async function accessibilityProblems(page: Page): Promise<string[]> {
  // Evaluated by the debugger, to which the policy of the page does not apply.
  await page.evaluate(axeSource)
  const { violations } = await page.evaluate(() => (globalThis as unknown as { axe: { run(): AxeResults } }).axe.run())
  return violations.flatMap(({ id, nodes }) =>
    nodes.map(({ html, failureSummary }) => `${id}: ${html} ${failureSummary}`),
  )
}
