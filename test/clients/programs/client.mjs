/** What the JavaScript programs have in common: the task that they read, and the report that they print. */
import { json } from 'node:stream/consumers'

export const stream = { language: 'bash', code: 'echo one; sleep 0.2; echo two; sleep 0.2' }
export const endless = { language: 'bash', code: 'echo started; sleep 60' }

export const task = await json(process.stdin)
export const headers = task.key ? { Authorization: `Bearer ${task.key}` } : {}

/** Content items of MCP as the test compares them. */
export const parts = (content) =>
  content.map((item) =>
    item.type === 'image'
      ? { type: 'image', mimeType: item.mimeType, data: item.data }
      : { type: 'text', text: item.text ?? JSON.stringify(item) },
  )

/** What each call of the task gave to the program, or the exception that it threw. */
export async function receive(call) {
  const results = []
  for (const each of task.calls)
    results.push(
      await call(each.tool, each.arguments).then(
        // Mastra answers arguments that do not fit with an object of its own.
        ({ isError, content, ...rest }) => ({ isError: isError === true, parts: parts(content ?? [{ ...rest }]) }),
        (error) => ({ thrown: true, parts: [{ type: 'text', text: error.message }] }),
      ),
    )
  return results
}

/** Prints the report and ends, also when the client keeps a connection open. */
export function report(fields) {
  process.stdout.write(`${JSON.stringify(fields)}\n`, () => process.exit())
}
