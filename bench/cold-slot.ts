import { setTimeout as sleep } from 'node:timers/promises'
import { median, quantile } from './figures.ts'
import { GloveboxServer } from './glovebox-server.ts'

export interface ColdSlot {
  runtime: string
  /** From the start of the program until a run can start. */
  startToReadyMs: number
  slots: number
  p50Ms: number
  p95Ms: number
}

/** Long enough for the previous slot to be gone: only the creation is measured. */
const betweenMs = 60

/**
 * Measures how long a run waits for its slot when none is ready, for each installed runtime in turn.
 * @param slots how many are created with each.
 */
export async function measureColdSlots(
  slots: number,
): Promise<{ measured: ColdSlot[]; absent: Record<string, string> }> {
  const servers: { runtime: string; server: GloveboxServer; waitedMs: number[] }[] = []
  const absent: Record<string, string> = {}
  try {
    for (const runtime of ['crun', 'runc', 'runsc']) {
      try {
        const flags = ['--runtime', runtime, '--slots-ready', '0', '--reuse', 'never']
        servers.push({ runtime, server: await GloveboxServer.start(flags), waitedMs: [] })
      } catch (error) {
        absent[runtime] = reasonIn((error as Error).message)
      }
    }
    for (let count = 0; count < slots; count++) {
      for (const { server, waitedMs } of servers) {
        waitedMs.push((await server.callTool('echo 1', 'bash')).timings.slot_ms)
        await sleep(betweenMs)
      }
    }
  } finally {
    for (const { server } of servers) await server.stop()
  }
  const measured = servers.map(({ runtime, server: { startToReadyMs }, waitedMs }) => ({
    ...{ runtime, startToReadyMs, slots, p50Ms: median(waitedMs), p95Ms: quantile(waitedMs, 0.95) },
  }))
  return { measured, absent }
}

/** The program explains in one sentence why it does not start. */
const reasonIn = (said: string): string =>
  said
    .split('\n')
    .find((line) => line.startsWith('glovebox: '))
    ?.slice('glovebox: '.length) ?? said.slice(0, 300)
