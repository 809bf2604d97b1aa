import { mkdirSync } from 'node:fs'
import { join } from 'node:path'
import type { Browser, BrowserContext, Page } from 'playwright-core'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { accessibilityProblems, chromiumPath, openBrowser } from '../support/browser.ts'
import { freePort, type Glovebox, Place } from '../support/glovebox.ts'
import { newKey, type OwnKey, runCommand } from '../support/keys.ts'

const screenshots = join(import.meta.dirname, '../../build/screenshots')

describe.skipIf(chromiumPath === undefined)('in a browser', () => {
  const place = new Place()
  let server: Glovebox
  let browser: Browser
  let context: BrowserContext
  let page: Page
  let key: OwnKey
  let token: string
  let runId: string
  const problems: string[] = []

  beforeAll(async () => {
    mkdirSync(screenshots, { recursive: true })
    server = await place.start('--no-dev', '--port', `${await freePort()}`)
    key = await newKey(place, '--org', 'acme')
    token = await newToken()
    const code =
      'print("<b>from the run\\u202e</b>")\nopen("notes.txt", "w").write("kept")\nimport os\nos.makedirs("sub/dir")'
    runId = (await run({ language: 'python', code, thread_id: 'analysis' })).trace_id
    await run({ language: 'bash', code: 'exit 3' })
    browser = await openBrowser()
    context = await browser.newContext()
    page = await context.newPage()
    // What its policy blocks, and what its script does not catch.
    page.on('console', (message) => {
      if (message.type() === 'error' && !/status of 40[13]/.test(message.text())) problems.push(message.text())
    })
    page.on('pageerror', (error) => problems.push(error.message))
  }, 120_000)
  afterAll(async () => {
    await browser?.close()
    await place.remove()
  })

  const newToken = async (role = 'admin'): Promise<string> =>
    (await runCommand(place, ['tokens', 'create', '--role', role, '--name', 'console'])).stdout.trim()

  const run = async (body: object): Promise<{ trace_id: string }> => {
    const response = await fetch(`${server.url}/v1/sandbox/execute`, {
      method: 'POST',
      headers: { 'content-type': 'application/json', ...key.headers },
      body: JSON.stringify(body),
    })
    expect(response.status).toBe(200)
    return (await response.json()) as { trace_id: string }
  }

  /** Logs in with the keyboard alone. */
  async function logIn(): Promise<void> {
    await page.goto(`${server.url}/console`)
    await page.locator('#token').waitFor()
    await page.locator('#token').focus()
    await page.keyboard.type(token)
    await page.keyboard.press('Enter')
    await page.locator('#nav').waitFor()
    await page.locator('#org').selectOption({ label: 'acme' })
  }

  async function view(hash: string): Promise<void> {
    await page.goto(`${server.url}/console#/${hash}`)
    await page.locator(`#view[data-place="#/${hash}"]`).waitFor()
  }
  const shown = (text: string | RegExp) => page.locator('#view').getByText(text).first().waitFor()

  it('the page at / runs code, and is accessible', async () => {
    await page.goto(server.url)
    await page.locator('#key').fill(key.secret)
    await page.locator('#code').fill('print(6 * 7)')
    await page.locator('#code').press('Control+Enter')
    await page.locator('#output').getByText('42').waitFor()
    expect(await accessibilityProblems(page)).toEqual([])
  })

  it('an operator logs in with the keyboard, and the token is not kept in the browser', async () => {
    await logIn()
    await shown('Health')
    const stored = await page.evaluate<string[]>(
      '[document.cookie, ...Object.values(localStorage), document.body.outerHTML]',
    )
    expect(JSON.stringify(stored)).not.toContain(token)
    expect(stored[0]).toBe('')
    const [cookie] = await context.cookies()
    expect(cookie).toMatchObject({ httpOnly: true, sameSite: 'Strict', path: '/' })
    expect(cookie!.value).not.toContain(token)
  })

  it('every view is accessible, in light and dark', async () => {
    const views = [
      `runs/${runId}`,
      'runs',
      'threads',
      'threads/analysis',
      'keys',
      'usage',
      'audit',
      'doctor',
      'overview',
    ]
    for (const name of views) {
      await view(name)
      for (const colorScheme of ['light', 'dark'] as const) {
        await page.emulateMedia({ colorScheme })
        expect([name, colorScheme, await accessibilityProblems(page)]).toEqual([name, colorScheme, []])
      }
    }
  }, 120_000)

  it('shows a run with its output as text, its timings and its files', async () => {
    await view('runs?status=success')
    await page
      .locator('#view')
      .getByRole('link', { name: runId.slice(0, 16) })
      .click()
    await shown('<b>from the run\\u{202e}</b>')
    await shown('queue')
    await page.locator('#view').getByRole('link', { name: 'notes.txt' }).click()
    await shown('sub/')
    const [download] = await Promise.all([
      page.waitForEvent('download'),
      page.locator('#view').getByRole('link', { name: 'notes.txt' }).click(),
    ])
    expect(download.suggestedFilename()).toBe('notes.txt')
    await page.locator('#view').getByRole('link', { name: 'sub/' }).click()
    await shown('dir/')
    expect(page.url()).toContain('path=sub')
  })

  it('shows runs as they begin and end, filters them, and cancels one', async () => {
    await view('runs?status=running')
    const running = run({ language: 'bash', code: 'echo begun; sleep 60' })
    const link = page.locator('#view tbody a').first()
    await link.click({ timeout: 20_000 })
    await page.locator('#view').getByRole('log').getByText('begun').waitFor()
    await page.locator('#view').getByRole('button', { name: 'Cancel the run' }).click()
    expect(await running).toMatchObject({ status: 'cancelled' })
    await shown('✗ cancelled')
    await view('runs?status=failed')
    await shown('✗ failed')
    expect(await page.locator('#view tbody tr').count()).toBe(1)
  })

  it('records in the audit log what an operator opened', async () => {
    await view('audit?action=run.read')
    await shown(runId)
    await view('audit?action=file.read')
    await shown('{"path":"notes.txt"}')
    await page.locator('#view').getByRole('button', { name: 'Verify the audit log' }).click()
    await page.locator('#status').getByText('The audit log is intact').waitFor()
  })

  it('is rendered for desktops and phones, light and dark', async () => {
    for (const [device, size] of Object.entries({
      desktop: { width: 1280, height: 800 },
      phone: { width: 320, height: 640 },
    })) {
      await page.setViewportSize(size)
      for (const colorScheme of ['light', 'dark'] as const) {
        await page.emulateMedia({ colorScheme })
        for (const [name, path] of [
          ['home', ''],
          ['runs', 'console#/runs'],
          ['run', `console#/runs/${runId}`],
          ['docs', 'docs/runtime'],
        ]) {
          await page.goto(`${server.url}/${path}`)
          await page
            .locator(path!.startsWith('console') ? '#view h2' : 'h1')
            .first()
            .waitFor()
          await page.screenshot({ path: join(screenshots, `${name}-${device}-${colorScheme}.png`), fullPage: true })
          // Nothing is cut off: tables scroll by themselves.
          const wider = await page.evaluate('document.documentElement.scrollWidth - innerWidth')
          expect([name, device, wider]).toEqual([name, device, 0])
        }
      }
    }
    await page.setViewportSize({ width: 1280, height: 800 })
  }, 120_000)

  it('ends the login with its token', async () => {
    const { stdout } = await runCommand(place, ['tokens', 'list', '--json'])
    const rows = JSON.parse(stdout) as { id: string; name: string }[] | { data: { id: string; name: string }[] }
    const { id } = (Array.isArray(rows) ? rows : rows.data).find(({ name }) => name === 'console')!
    await view('keys')
    expect((await runCommand(place, ['tokens', 'revoke', id])).code).toBe(0)
    await page.locator('#nav').getByRole('link', { name: 'Usage' }).click()
    await page.locator('#status').getByText('Your login has ended.').waitFor()
    expect(await page.locator('#view').textContent()).toBe('')
  })

  it('renders the documentation, with links between its pages', async () => {
    await page.goto(`${server.url}/docs`)
    await page.getByRole('link', { name: 'Runtime', exact: true }).click()
    await page.getByRole('link', { name: 'Runtime tools' }).first().click()
    await page.getByRole('heading', { name: 'Runtime tools' }).waitFor()
    expect(page.url()).toBe(`${server.url}/docs/runtime-tools`)
    expect(await accessibilityProblems(page)).toEqual([])
  })

  it('violates no policy, and its script has no errors', () => {
    expect(problems).toEqual([])
  })
})
