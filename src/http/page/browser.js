/** The script of the page at `/`: shows the configuration of one client, copies text, and runs code with live output. */

/** Characters of output that the page shows; the rest is named. */
const shownMax = 200_000

const find = (id) => document.getElementById(id)
const client = find('client')
const form = find('run')

function showClient() {
  for (const panel of document.querySelectorAll('[data-client]')) panel.hidden = panel.dataset.client !== client.value
}

async function copy(button) {
  const text = find(button.dataset.copy).textContent
  try {
    await navigator.clipboard.writeText(text)
    find('copied').textContent = 'Copied to the clipboard.'
  } catch {
    // Not allowed over plain HTTP from another machine: select the text instead.
    getSelection()?.selectAllChildren(find(button.dataset.copy))
    find('copied').textContent = 'The text is selected; copy it with the keyboard.'
  }
}

class Output {
  #shown = 0

  constructor() {
    find('output').replaceChildren()
    find('images').replaceChildren()
  }

  add(stream, text) {
    const part = text.slice(0, Math.max(0, shownMax - this.#shown))
    this.#shown += text.length
    if (part === '') return
    const span = document.createElement('span')
    span.className = stream
    span.textContent = part
    find('output').append(span)
  }

  addImage({ mime_type: type, data_base64: data }, number) {
    const image = document.createElement('img')
    image.src = `data:${type};base64,${data}`
    image.alt = `Figure ${number}`
    find('images').append(image)
  }

  get note() {
    return this.#shown > shownMax ? ` The page shows the first ${shownMax} characters.` : ''
  }
}

async function* linesOf(response) {
  let rest = ''
  for await (const chunk of response.body.pipeThrough(new TextDecoderStream())) {
    const lines = (rest + chunk).split('\n')
    rest = lines.pop()
    yield* lines
  }
}

function headers() {
  const key = find('key')?.value.trim()
  return {
    accept: 'application/x-ndjson',
    'content-type': 'application/json',
    ...(key && { authorization: `Bearer ${key}` }),
  }
}

async function run(stop) {
  const output = new Output()
  const body = JSON.stringify({ language: find('language').value, code: find('code').value })
  const response = await fetch('v1/sandbox/execute', { method: 'POST', headers: headers(), body, signal: stop })
  if (!response.ok) {
    const { message, hint = '' } = await response.json()
    return `${message} ${hint}`
  }
  let images = 0
  let outcome = 'The connection ended before the run.'
  for await (const line of linesOf(response)) {
    const event = JSON.parse(line)
    if (event.type === 'stdout' || event.type === 'stderr') output.add(event.type, event.data)
    else if (event.type === 'image') output.addImage(event, ++images)
    else if (event.type === 'result') outcome = `${event.status} in ${Math.round(event.duration_ms)} ms.`
    else if (event.type === 'error') outcome = event.message
  }
  return outcome + output.note
}

async function submit(event) {
  event.preventDefault()
  if (find('start').disabled) return
  const stop = new AbortController()
  const cancel = () => stop.abort()
  find('start').disabled = true
  find('stop').disabled = false
  find('stop').addEventListener('click', cancel)
  find('outcome').textContent = 'Running …'
  try {
    find('outcome').textContent = await run(stop.signal)
  } catch (error) {
    find('outcome').textContent = stop.signal.aborted ? 'Stopped.' : `The server cannot be reached: ${error.message}`
  } finally {
    find('stop').removeEventListener('click', cancel)
    find('start').disabled = false
    find('stop').disabled = true
  }
}

client.addEventListener('change', showClient)
showClient()
for (const button of document.querySelectorAll('[data-copy]')) button.addEventListener('click', () => copy(button))
form.addEventListener('submit', submit)
find('code').addEventListener('keydown', (event) => {
  if (event.key === 'Enter' && (event.ctrlKey || event.metaKey)) form.requestSubmit()
})
