/** The console: login, navigation by the hash of the address, and the stream of changes. */
import { el } from './elements.js'
import { views } from './views.js'

/** At most so often is a view loaded again because of changes, in milliseconds. */
const reloadEveryMs = 1_000
/** Before the stream of changes is opened again. */
const reconnectMs = 3_000

const find = (id) => document.getElementById(id)
const say = (text) => {
  find('status').textContent = text
}

/** `undefined` without a login. */
let login
/** The view that is being loaded or shown; a slower earlier one is dropped. */
let shown = 0
/** Ends what the view that is shown has open. */
let leaving = new AbortController()
let isPaused = false

/** Sends a request with the login. @throws Error with the message and the hint of the server. */
async function send(method, path, body) {
  const response = await fetch(path, {
    method,
    headers: {
      ...(body !== undefined && { 'content-type': 'application/json' }),
      ...(login && { 'x-csrf-token': login.csrf_token }),
    },
    ...(body !== undefined && { body: JSON.stringify(body) }),
  })
  if (response.status === 401) logOut('Your login has ended.')
  const answer = response.status === 204 ? undefined : await response.json()
  if (!response.ok) throw new Error([answer.message, answer.hint].filter(Boolean).join(' '))
  return answer
}

const get = (path) => send('GET', path)

/** Calls a runtime tool. */
async function tool(name) {
  const params = { name, arguments: {} }
  const response = await fetch('runtime/rpc', {
    method: 'POST',
    headers: { 'content-type': 'application/json', 'x-csrf-token': login.csrf_token },
    body: JSON.stringify({ jsonrpc: '2.0', id: 1, method: 'tools/call', params }),
  })
  const { result, error } = await response.json()
  if (error) throw new Error([error.message, error.data?.hint].filter(Boolean).join(' '))
  return result.structuredContent
}

/** `#/runs/trc_1?status=failed` */
function place() {
  const [path, query = ''] = location.hash.replace(/^#\/?/, '').split('?')
  const [name, id] = path.split('/').map(decodeURIComponent)
  return {
    name: Object.hasOwn(views, name) ? name : 'overview',
    id: id || undefined,
    query: new URLSearchParams(query),
  }
}

/** @param isAgain whether the same view is loaded again, so that the focus stays where it is. */
async function show(isAgain = false) {
  if (!login) return
  const number = ++shown
  leaving.abort()
  leaving = new AbortController()
  const { signal } = leaving
  const { name, id, query } = place()
  const { title, show: all, one, isLive } = views[name]
  for (const item of find('nav').children) {
    if (item.getAttribute('href') === `#/${name}`) item.setAttribute('aria-current', 'page')
    else item.removeAttribute('aria-current')
  }
  document.title = `${id ?? title} – Glovebox console`
  if (!isAgain) say('Loading …')
  let content
  try {
    const load = id !== undefined && one ? one : all
    content = await load({ get, send, tool, say, org: find('org').value, id, query, signal, reload: () => show(true) })
    if (number === shown && !isAgain) say('')
  } catch (error) {
    if (number === shown) say(error.message)
    return
  }
  if (number !== shown) return
  const focused = isAgain ? focusIn(find('view')) : undefined
  const pause = () => {
    isPaused = !isPaused
    find('pause').textContent = isPaused ? 'Continue' : 'Pause'
  }
  const toggle = isLive
    ? el('button', { type: 'button', id: 'pause', onclick: pause }, isPaused ? 'Continue' : 'Pause')
    : ''
  find('view').replaceChildren(
    el('h2', {}, id === undefined ? title : `${title}: ${id}`),
    toggle,
    ...content.filter((child) => child !== ''),
  )
  find('view').dataset.place = location.hash
  if (focused) focused()
  else if (!isAgain) find('view').focus()
}

/** Returns a function that focuses the same element after the view was loaded again. */
function focusIn(view) {
  const { activeElement: element } = document
  if (!view.contains(element) || element === view) return undefined
  const all = () => [...view.querySelectorAll('a, button, input, select, [tabindex]')]
  const at = all().indexOf(element)
  return () => all()[at]?.focus()
}

let reloadTimer
/** @param runId the run that changed; `undefined` if changes were missed. */
const reloadSoon = (runId) => {
  const { id } = place()
  if (id !== undefined && runId !== undefined && id !== runId) return
  if (reloadTimer !== undefined) return
  reloadTimer = setTimeout(() => {
    reloadTimer = undefined
    const { name, query } = place()
    // A form that is being filled in stays.
    const isTyping = find('view').querySelector('form')?.contains(document.activeElement) ?? false
    if (!isPaused && !document.hidden && !isTyping && views[name].isLive && !query.get('cursor')) void show(true)
  }, reloadEveryMs)
}

/** Follows runs and other changes while someone is logged in. */
async function follow() {
  const own = login
  let after = ''
  while (login === own) {
    try {
      const response = await fetch(`admin/v1/changes?after=${after}`)
      if (!response.ok) throw new Error(`status ${response.status}`)
      let rest = ''
      for await (const piece of response.body.pipeThrough(new TextDecoderStream())) {
        if (login !== own) return
        const blocks = (rest + piece).split('\n\n')
        rest = blocks.pop()
        for (const block of blocks) {
          const id = /^id: (\d+-\d+)$/m.exec(block)?.[1]
          if (id) after = id
          if (/^event: reset$/m.test(block)) after = ''
          const data = /^data: (.+)$/m.exec(block)?.[1]
          if (data) reloadSoon(JSON.parse(data).trace_id)
        }
      }
    } catch {
      // The server restarts, or the network is gone.
    }
    await new Promise((resolve) => setTimeout(resolve, reconnectMs))
  }
}

async function logIn(event) {
  event.preventDefault()
  const token = find('token').value.trim()
  find('token').value = ''
  const headers = { authorization: `Bearer ${token}`, 'content-type': 'application/json' }
  const response = await fetch('console/login', { method: 'POST', headers, body: '{}' })
  const answer = await response.json()
  if (response.ok) await begin(answer)
  else say([answer.message, response.status === 401 ? 'Enter a valid admin token.' : answer.hint].join(' '))
}

async function begin(answer) {
  login = answer
  const { data: orgs } = await get('admin/v1/orgs?limit=200')
  find('org').replaceChildren(...orgs.map(({ id, name }) => el('option', { value: id }, name)))
  setLoggedIn(true)
  void follow()
  await show()
}

function setLoggedIn(isLoggedIn) {
  find('login').hidden = isLoggedIn
  find('nav').hidden = !isLoggedIn
  find('tools').hidden = !isLoggedIn
  if (!isLoggedIn) find('view').replaceChildren()
}

function logOut(reason) {
  login = undefined
  shown += 1
  leaving.abort()
  setLoggedIn(false)
  say(reason)
  find('token').focus()
}

find('login').addEventListener('submit', (event) => logIn(event).catch((error) => say(error.message)))
find('logout').addEventListener('click', async () => {
  await send('DELETE', 'console/login').catch(() => {})
  logOut('You are logged out.')
})
find('org').addEventListener('change', () => show())
addEventListener('hashchange', () => show())

const known = await fetch('console/login')
if (known.ok) await begin(await known.json()).catch((error) => say(error.message))
else setLoggedIn(false)
