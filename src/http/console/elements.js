/** Builds the elements of the console. Everything that comes from the server becomes text, never HTML. */

/** Characters that change how others are shown, or that are not visible. */
const hidden = /(?![\t\n])[\p{Cc}\p{Cf}\p{Zl}\p{Zp}]/gu

/** Returns a text in which every character is visible. */
export const visible = (text) =>
  String(text).replace(hidden, (character) => `\\u{${character.codePointAt(0).toString(16)}}`)

/** Makes an element. A property `class` is the class, others are attributes; children are texts or elements. */
export function el(name, properties = {}, ...children) {
  const element = document.createElement(name)
  for (const [key, value] of Object.entries(properties)) {
    if (value === false || value === undefined || value === null) continue
    if (key.startsWith('on')) element.addEventListener(key.slice(2), value)
    else element.setAttribute(key, value === true ? '' : value)
  }
  element.append(...children.flat().map((child) => (child instanceof Node ? child : visible(child ?? ''))))
  return element
}

/** A table with a caption for screen readers. @param columns names; @param rows arrays of texts or elements. */
export function table(caption, columns, rows) {
  if (rows.length === 0) return el('p', { class: 'soft' }, `No ${caption.toLowerCase()}.`)
  const cell = (content) =>
    typeof content === 'number' ? el('td', { class: 'number' }, content.toLocaleString()) : el('td', {}, content ?? '–')
  return el(
    'div',
    { class: 'scroll', tabindex: '0', role: 'region', 'aria-label': caption },
    el(
      'table',
      {},
      el(
        'thead',
        {},
        el(
          'tr',
          {},
          columns.map((column) => el('th', { scope: 'col' }, column)),
        ),
      ),
      el(
        'tbody',
        {},
        rows.map((row) => el('tr', {}, row.map(cell))),
      ),
    ),
  )
}

/** A list of names and values; values that are absent are left out. */
export const facts = (entries) =>
  el(
    'dl',
    {},
    Object.entries(entries)
      .filter(([, value]) => value !== undefined && value !== null && value !== '')
      .flatMap(([name, value]) => [el('dt', {}, name), el('dd', {}, value)]),
  )

/** A time of the reader, with the exact one as its title. */
export function time(iso) {
  if (!iso) return '–'
  return el('time', { datetime: iso, title: iso }, new Date(iso).toLocaleString())
}

export function bytes(count) {
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB']
  const at = Math.min(units.length - 1, count < 1 ? 0 : Math.floor(Math.log2(count) / 10))
  return `${Math.round((count / 2 ** (10 * at)) * 10) / 10} ${units[at]}`
}

/** Status in words, with a shape besides its color. */
export function status(value) {
  const shape = { success: '✓', running: '…', healthy: '✓' }[value] ?? '✗'
  const kind = { success: 'good', healthy: 'good', running: 'soft' }[value] ?? 'bad'
  return el('span', { class: kind }, `${shape} ${value}`)
}

/** A form whose fields become the query of a view. @param fields names with a label and, for a choice, its values. */
export function filters(view, fields, query) {
  const inputs = Object.entries(fields).map(([name, { label, values }]) => {
    const id = `filter-${name}`
    const given = query.get(name) ?? ''
    const input = values
      ? el(
          'select',
          { id, name },
          ['', ...values].map((value) => el('option', { value, selected: value === given }, value || 'all')),
        )
      : el('input', { id, name, value: given, autocomplete: 'off' })
    return el('div', {}, el('label', { for: id }, label), input)
  })
  const apply = (event) => {
    event.preventDefault()
    const given = [...new FormData(event.target)].filter(([, value]) => value !== '')
    location.hash = `#/${view}?${new URLSearchParams(given)}`
  }
  return el('form', { class: 'filters', onsubmit: apply }, inputs, el('button', {}, 'Filter'))
}

/** A link to the next page of a list. */
export function nextPage(view, query, cursor) {
  if (!cursor) return ''
  const next = new URLSearchParams(query)
  next.set('cursor', cursor)
  return el('p', {}, el('a', { href: `#/${view}?${next}` }, 'Next page'))
}
