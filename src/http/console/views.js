/** The views of the console. Each loads what it shows and returns elements; `live` says what changes it follows. */
import { bytes, el, facts, filters, nextPage, status, table, time } from './elements.js'

/** Entries of a directory that a page shows. */
const filesMax = 200
/** Characters of a running run that a page shows. */
const liveMax = 200_000

const link = (hash, text) => el('a', { href: `#/${hash}` }, text)
const part = (text) => encodeURIComponent(text)
const milliseconds = (ms) => (ms === null || ms === undefined ? '–' : `${Math.round(ms * 10) / 10} ms`)
const short = (id) => (id.length > 16 ? `${id.slice(0, 16)}…` : id)

/** Query of the API: some parameters of a view. */
const queryOf = (query, names) =>
  new URLSearchParams(names.flatMap((name) => (query.get(name) ? [[name, query.get(name)]] : []))).toString()

async function overview({ tool }) {
  const [health, now] = await Promise.all([tool('system_get_health'), tool('performance_get_snapshot')])
  const rows = Object.entries(now.runs ?? {}).filter(([, value]) => typeof value === 'number')
  return [
    facts({
      Health: el(
        'span',
        {},
        status(health.status),
        ` score ${health.score}, `,
        link('doctor', `${health.issues.length} issues`),
      ),
      Version: now.version,
    }),
    el('h3', {}, 'Parts of the server'),
    table('Scores', ['Part', 'Score'], Object.entries(health.subsystems)),
    el('h3', {}, 'Runs of the last ten minutes'),
    table(
      'Figures',
      ['Figure', 'Value'],
      rows.map(([name, value]) => [name.replaceAll('_', ' '), Math.round(value * 100) / 100]),
    ),
    el('p', {}, link('runs', 'All runs')),
  ]
}

const runFilters = {
  status: { label: 'Status', values: ['running', 'success', 'failed', 'timeout', 'oom', 'cancelled'] },
  language: { label: 'Language', values: ['python', 'node', 'typescript', 'bash'] },
  key_id: { label: 'Key' },
  thread_id: { label: 'Thread' },
}

async function runs({ get, org, query }) {
  const asked = queryOf(query, [...Object.keys(runFilters), 'cursor'])
  const { data, next_cursor: cursor } = await get(`admin/v1/orgs/${part(org)}/executions?${asked}`)
  const rows = data.map((run) => [
    link(`runs/${part(run.trace_id)}`, short(run.trace_id)),
    time(run.created_at),
    status(run.status),
    run.language,
    milliseconds(run.duration_ms),
    link(`runs?key_id=${part(run.key_id)}`, short(run.key_id)),
    run.thread_id === null ? '–' : link(`threads/${part(run.thread_id)}`, run.thread_id),
  ])
  const columns = ['Run', 'Started', 'Status', 'Language', 'Duration', 'Key', 'Thread']
  return [filters('runs', runFilters, query), table('Runs', columns, rows), nextPage('runs', query, cursor)]
}

/** Adds the output of a run to an element as it appears. */
async function followOutput(path, into, signal) {
  const response = await fetch(`${path}/output`, { signal })
  if (!response.ok) return
  let rest = ''
  let shown = 0
  for await (const piece of response.body.pipeThrough(new TextDecoderStream())) {
    const lines = (rest + piece).split('\n')
    rest = lines.pop()
    for (const line of lines) {
      const { type, data } = JSON.parse(line)
      if ((type !== 'stdout' && type !== 'stderr') || shown > liveMax) continue
      shown += data.length
      into.append(el('span', { class: type }, data))
    }
  }
}

async function oneRun({ get, send, org, id, reload, signal }) {
  const path = `admin/v1/orgs/${part(org)}/executions/${part(id)}`
  const run = await get(path)
  const cancel = async () => {
    await send('POST', `${path}/cancel`, {})
    reload()
  }
  const live = el('pre', { tabindex: '0', role: 'log', 'aria-label': 'Output so far' })
  // Ends with the view; the whole output is shown when the run has ended.
  if (run.status === 'running') followOutput(path, live, signal).catch(() => {})
  const output = (name, text) => [
    el('h3', { id: name }, name === 'stdout' ? 'Output' : 'Errors'),
    el(
      'pre',
      { tabindex: '0', role: 'region', 'aria-labelledby': name },
      text === null ? 'Not kept.' : text || 'Nothing.',
    ),
  ]
  const files = (run.files ?? []).map((file) => [
    run.thread_id === null ? file.path : link(`threads/${part(run.thread_id)}`, file.path),
    file.kind,
    bytes(file.size_bytes),
  ])
  const timings = Object.entries(run.timings ?? {}).map(([phase, ms]) => [phase.replace(/_ms$/, ''), milliseconds(ms)])
  return [
    el('p', {}, link('runs', 'All runs')),
    facts({
      Run: run.trace_id,
      Status: status(run.status),
      Ending: run.error ?? undefined,
      'Exit code': run.exit_code === null ? undefined : String(run.exit_code),
      Language: run.language,
      Key: link(`runs?key_id=${part(run.key_id)}`, run.key_id),
      Thread: run.thread_id === null ? undefined : link(`threads/${part(run.thread_id)}`, run.thread_id),
      Subject: run.subject,
      Started: time(run.created_at),
      Ended: run.completed_at === null ? undefined : time(run.completed_at),
      Duration: milliseconds(run.duration_ms),
      'Peak memory': run.memory_peak_bytes ? bytes(run.memory_peak_bytes) : undefined,
    }),
    run.status === 'running' ? el('button', { type: 'button', onclick: cancel }, 'Cancel the run') : '',
    ...(run.code === null
      ? []
      : [el('h3', {}, 'Code'), el('pre', { tabindex: '0', role: 'region', 'aria-label': 'Code' }, run.code)]),
    ...(run.status === 'running'
      ? [el('h3', {}, 'Output so far'), live]
      : [...output('stdout', run.stdout), ...output('stderr', run.stderr)]),
    ...(run.images ?? []).map(({ mime_type: type, data_base64: data }, at) =>
      el('img', { src: `data:${type};base64,${data}`, alt: `Figure ${at + 1}` }),
    ),
    el('h3', {}, 'Timings'),
    table('Timings', ['Phase', 'Duration'], timings),
    el('h3', {}, 'Changed files'),
    table('Changed files', ['File', 'Kind', 'Size'], files),
  ]
}

async function threads({ get, org, query }) {
  const { data, next_cursor: cursor } = await get(`admin/v1/orgs/${part(org)}/threads?${queryOf(query, ['cursor'])}`)
  const rows = data.map((thread) => [
    link(`threads/${part(thread.id)}`, thread.id),
    bytes(thread.size_bytes),
    time(thread.last_used_at),
    thread.busy ? 'in use' : 'idle',
    link(`runs?thread_id=${part(thread.id)}`, 'runs'),
  ])
  return [
    table('Threads', ['Thread', 'On disk', 'Last used', 'State', 'Runs'], rows),
    nextPage('threads', query, cursor),
  ]
}

async function threadFiles({ get, org, id, query }) {
  const at = query.get('path') ?? ''
  const base = `admin/v1/orgs/${part(org)}/threads/${part(id)}`
  const here = (path) => `threads/${part(id)}?${new URLSearchParams(path ? { path } : {})}`
  const asked = new URLSearchParams({
    path: at,
    limit: String(filesMax),
    ...(query.get('cursor') && { cursor: query.get('cursor') }),
  })
  const { files, next_cursor: cursor } = await get(`${base}/files?${asked}`)
  const names = at.split('/').filter(Boolean)
  const trail = names.flatMap((name, depth) => [' / ', link(here(names.slice(0, depth + 1).join('/')), name)])
  const rows = files
    .toSorted((a, b) => Number(b.kind === 'directory') - Number(a.kind === 'directory') || (a.name < b.name ? -1 : 1))
    .map(({ name, kind, size, modified }) => {
      const path = [...names, name].join('/')
      if (kind === 'directory') return [link(here(path), `${name}/`), '–', time(modified)]
      const href = `${base}/content?${new URLSearchParams({ path })}`
      return [
        kind === 'file' ? el('a', { href, download: name }, name) : `${name} (${kind})`,
        bytes(size),
        time(modified),
      ]
    })
  return [
    el('p', {}, link('threads', 'All threads'), ' · ', link(`runs?thread_id=${part(id)}`, 'Runs of this thread')),
    el('nav', { 'aria-label': 'Directory' }, el('p', {}, link(here(''), id), trail)),
    table('Files', ['Name', 'Size', 'Changed'], rows),
    nextPage(`threads/${part(id)}`, query, cursor),
  ]
}

async function keys({ get, org, query }) {
  const { data, next_cursor: cursor } = await get(`admin/v1/orgs/${part(org)}/keys?${queryOf(query, ['cursor'])}`)
  const rows = data.map((key) => [
    link(`runs?key_id=${part(key.id)}`, key.id),
    key.name,
    key.prefix ?? '–',
    key.profile,
    time(key.created_at),
    key.revoked_at
      ? el('span', { class: 'bad' }, '✗ revoked ', time(key.revoked_at))
      : key.expires_at
        ? time(key.expires_at)
        : 'never',
  ])
  return [table('Keys', ['Key', 'Name', 'Prefix', 'Profile', 'Created', 'Ends'], rows), nextPage('keys', query, cursor)]
}

async function usage({ get, org }) {
  const { data } = await get(`admin/v1/orgs/${part(org)}/usage`)
  const rows = data.map((day) => [
    day.day,
    link(`runs?key_id=${part(day.key_id)}`, short(day.key_id)),
    day.runs,
    Math.round(day.run_seconds * 10) / 10,
    Math.round(day.cpu_seconds * 10) / 10,
    day.refused,
    Math.round(day.sandbox_seconds),
  ])
  const columns = ['Day', 'Key', 'Runs', 'Run seconds', 'CPU seconds', 'Refused', 'Sandbox seconds']
  return [table('Usage of the last 30 days', columns, rows)]
}

async function audit({ get, send, org, query, say }) {
  const asked = new URLSearchParams(queryOf(query, ['action', 'actor', 'cursor']))
  asked.set('org', org)
  const { data, next_cursor: cursor } = await get(`admin/v1/audit?${asked}`)
  const verify = async () => {
    const { holds, lines, problem } = await send('POST', 'admin/v1/audit/verify', {})
    say(holds ? `The audit log is intact: ${lines} records.` : `The audit log was changed: ${problem}`)
  }
  const rows = data.map((record) => [
    record.seq,
    time(record.at),
    record.action,
    record.actor,
    record.target,
    el('code', {}, JSON.stringify(record.details)),
  ])
  return [
    filters('audit', { action: { label: 'Action' }, actor: { label: 'Key or token' } }, query),
    el(
      'button',
      { type: 'button', onclick: () => verify().catch((error) => say(error.message)) },
      'Verify the audit log',
    ),
    table('Audit records', ['Number', 'Time', 'Action', 'By', 'Target', 'Details'], rows),
    nextPage('audit', query, cursor),
  ]
}

async function doctor({ tool }) {
  const [health, machine] = await Promise.all([tool('system_get_health'), tool('runtime_get_info')])
  const rows = health.issues.map((issue) => [
    el('span', { class: issue.severity === 'info' ? 'soft' : 'bad' }, issue.severity),
    issue.code,
    issue.message,
    issue.suggestedAction,
  ])
  const shown = Object.entries(machine).flatMap(([name, value]) =>
    typeof value === 'object' ? [] : [[name.replaceAll('_', ' '), String(value)]],
  )
  return [
    facts({ Health: el('span', {}, status(health.status), ` score ${health.score}`) }),
    table('Issues', ['Severity', 'Code', 'What is wrong', 'What to do'], rows),
    el('h3', {}, 'This server'),
    facts(Object.fromEntries(shown)),
    el(
      'p',
      { class: 'soft' },
      'On the machine itself, glovebox doctor checks the kernel, the disks and the OCI runtime.',
    ),
  ]
}

/** By name: the title, and what shows it. With `isLive` it is loaded again when runs begin and end. */
export const views = {
  overview: { title: 'Overview', show: overview, isLive: true },
  runs: { title: 'Runs', show: runs, one: oneRun, isLive: true },
  threads: { title: 'Threads', show: threads, one: threadFiles },
  keys: { title: 'Keys', show: keys },
  usage: { title: 'Usage', show: usage },
  audit: { title: 'Audit', show: audit },
  doctor: { title: 'Doctor', show: doctor },
}
