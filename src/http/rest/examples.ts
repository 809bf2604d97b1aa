/** Examples in the OpenAPI document. Its linter checks them against their schemas. */

const at = { created_at: '2027-01-31T12:00:00.000Z', completed_at: '2027-01-31T12:00:00.041Z' }

const ended = {
  trace_id: 'trc_01JJXK4T8ZC3Q5W7V9N1M2P4R6',
  status: 'success',
  success: true,
  exit_code: 0,
  ending: { kind: 'exited', code: 0 },
  error: null,
  duration_ms: 21.4,
  ...at,
  delivery_mode: 'inline',
}

export const executeExample = {
  body: { language: 'python', code: 'print(6 * 7)', thread_id: 'analysis-42', timeout: 30 },
  answer: { ...ended, signal: null, stdout: '42\n', stderr: '', truncated: false },
}

const listed = { ...ended, language: 'python', thread_id: 'analysis-42', metadata: { customer: 'c-17' }, subject: null }
export const executionsExample = { answer: { data: [listed], next_cursor: null } }
export const executionExample = {
  answer: {
    ...listed,
    ...{ signal: null, stdout: '42\n', stderr: '', truncated: false },
    ...{ output_kept: true, code: null, delivery: null },
  },
}
export const outputExample = {
  answer: {
    ...{ trace_id: ended.trace_id, status: 'success', ending: ended.ending, stdout: '42\n', stderr: '' },
    ...{ truncated: false, output_kept: true },
  },
}

const thread = {
  id: 'analysis-42',
  size_bytes: 73_728,
  created_at: at.created_at,
  last_used_at: at.completed_at,
  busy: false,
}
const inspected = { ...thread, quota_bytes: 1_073_741_824, used_bytes: 4_096 }
export const threadsExample = { answer: { data: [thread], next_cursor: null } }
export const threadExample = { answer: inspected }
export const forkExample = { body: { to: 'analysis-43' }, answer: { ...inspected, id: 'analysis-43' } }

const inThread = { source: 'thread', id: 'analysis-42' }
const file = { name: 'table.csv', path: 'out/table.csv', size: 8, modified: at.completed_at, is_directory: false }
const link = { url: 'https://code.example/v1/blobs/WyJrZXlf….Yx2B…', expires_at: '2027-01-31T12:15:00.000Z' }
export const listFilesExample = {
  body: { ...inThread, path: 'out', limit: 100 },
  answer: { files: [file], next_cursor: null },
}
export const uploadFileExample = {
  body: { ...inThread, path: 'data.csv', size: 8 },
  answer: { ...link, method: 'PUT', headers: [{ name: 'Content-Length', value: '8' }] },
}
export const downloadFileExample = {
  body: { ...inThread, path: 'out/table.csv' },
  answer: { ...link, method: 'GET', headers: [] },
}
export const deleteFilesExample = {
  body: { ...inThread, paths: ['out/table.csv', 'old'], recursive: true },
  answer: { deleted: 3 },
}
