import Type from 'typebox'
import { Refusal } from '../../base/errors.ts'
import { recordLogin } from '../../core/admin/tokens.ts'
import { adminGroup as group } from '../admin/orgs.ts'
import { secretOf } from '../authenticate.ts'
import { serverGroup } from '../health.ts'
import { adminOperation, noContent, type Operation, ok } from '../operation.ts'
import { asset, html, sendPart } from '../page/html.ts'
import { named, orNull } from '../schemas.ts'
import { type Login, loginCookie } from './logins.ts'

const views = ['overview', 'runs', 'threads', 'keys', 'usage', 'audit', 'doctor'] as const
const titleOf = (view: string): string => `${view[0]!.toUpperCase()}${view.slice(1)}`

/** The same for everyone: what it shows is loaded by its script, with the rights of the login. */
const page = html`<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Glovebox console</title>
<link rel="stylesheet" href="assets/page.css">
<link rel="stylesheet" href="assets/console.css">
<script type="module" src="assets/console.js"></script>
</head>
<body>
<a class="skip" href="#view">Skip to the content</a>
<header>
  <h1>Glovebox console</h1>
  <nav id="nav" aria-label="Views" hidden>
    ${views.map((view) => html`<a href="#/${view}">${titleOf(view)}</a>`)}
    <a href=".">Home page</a>
  </nav>
  <div id="tools" hidden>
    <label for="org">Organization</label>
    <select id="org"></select>
    <button id="logout" type="button">Log out</button>
  </div>
</header>
<main>
  <noscript><p>The console needs JavaScript. Everything that it shows is also in the admin API.</p></noscript>
  <form id="login" hidden>
    <h2>Log in</h2>
    <p>Create a token with <code>glovebox tokens create --role admin --name console</code>.</p>
    <label for="token">Admin token</label>
    <input id="token" type="password" autocomplete="off" size="50" required>
    <button>Log in</button>
  </form>
  <p id="status" role="status"></p>
  <section id="view" tabindex="-1" aria-label="Content"></section>
</main>
</body>
</html>
`

const LoginView = named(
  'Login',
  Type.Object({
    token_id: Type.String(),
    role: Type.String(),
    org_id: orNull(Type.String(), { description: 'null for the whole instance.' }),
    csrf_token: Type.String({ description: 'Required as the header X-CSRF-Token by requests that change something.' }),
  }),
)

const toView = ({ id, role, orgId }: { id: string; role: string; orgId: string | null }, { csrfToken }: Login) => ({
  ...{ token_id: id, role, org_id: orgId, csrf_token: csrfToken },
})

const open = { method: 'GET', access: 'open', capability: null, group: serverGroup, refusals: [] } as const

/** @param source its name here: a `console.js` would be the compiled form of this file. */
const file = (id: string, name: string, mediaType: string, source = name): Operation => ({
  ...open,
  id,
  path: `/assets/${name}`,
  summary: `Get a file of the console: ${name}`,
  answers: { 200: { mediaType } },
  handler: () => {
    const content = asset(`../console/${source}`)
    return async (_request, reply) => sendPart(reply, mediaType, content)
  },
})

export const consoleOperations: readonly Operation[] = [
  {
    ...open,
    id: 'console',
    path: '/console',
    summary: 'Get the console for operators, which asks for an admin token',
    answers: { 200: { mediaType: 'text/html' } },
    handler: () => async (request, reply) => {
      // Its links are relative, so that it works below a path of a proxy.
      if (request.url.split('?')[0]!.endsWith('/')) return reply.redirect('../console', 308)
      return sendPart(reply, 'text/html', page.text)
    },
  },
  file('consoleStyle', 'console.css', 'text/css'),
  file('consoleScript', 'console.js', 'text/javascript', 'browser.js'),
  file('consoleViews', 'views.js', 'text/javascript'),
  file('consoleElements', 'elements.js', 'text/javascript'),
  adminOperation({
    id: 'beginLogin',
    method: 'POST',
    path: '/console/login',
    group,
    summary: 'Log a browser in: sets a cookie that stands for the admin token of the request',
    answers: { 200: LoginView },
    refusals: ['token_missing'],
    handle: async ({ server: { logins, forwarded }, context, admin, request, reply }) => {
      const token = secretOf(request.headers)
      // A login does not prolong itself.
      if (token === undefined) throw new Refusal('token_missing')
      await recordLogin(context, admin)
      const { secret, login } = logins.begin(admin.id, token)
      reply.header('set-cookie', loginCookie(forwarded(request.raw).protocol, secret))
      return ok(toView(admin, login))
    },
  }),
  adminOperation({
    id: 'getLogin',
    method: 'GET',
    path: '/console/login',
    group,
    summary: 'Get the login of this browser',
    answers: { 200: LoginView },
    refusals: ['login_expired'],
    handle: async ({ admin, request }) => {
      if (request.login === null) throw new Refusal('login_expired')
      return ok(toView(admin, request.login))
    },
  }),
  adminOperation({
    id: 'endLogin',
    method: 'DELETE',
    path: '/console/login',
    group,
    summary: 'Log this browser out',
    answers: { 204: null },
    refusals: ['login_expired', 'csrf_token_missing'],
    handle: async ({ server: { logins, forwarded }, request, reply }) => {
      logins.end(request.headers)
      reply.header('set-cookie', loginCookie(forwarded(request.raw).protocol, undefined))
      return noContent
    },
  }),
]
