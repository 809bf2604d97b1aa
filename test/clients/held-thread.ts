import { follow, post } from '../support/calls.ts'
import type { OwnKey } from '../support/keys.ts'
import { heldThread } from './cases.ts'

/** Does something while another run of a key uses the thread. @param url of the server. */
export async function whileHeld<T>(url: string, { headers }: OwnKey, act: () => Promise<T>): Promise<T> {
  const held = { thread_id: heldThread, timeout: 300 }
  const holder = await follow(url, 'bash', 'echo held; sleep 300', held, headers)
  await holder.said('held')
  try {
    return await act()
  } finally {
    await post(`${url}/v1/executions/${holder.runId}/cancel`, {}, headers)
    await holder.result
  }
}
