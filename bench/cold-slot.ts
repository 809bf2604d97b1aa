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

/** Long enough for the slot before to be gone: what is measured is making one. */
const betweenMs = 60

/**
 * What a run waits for its slot when none is ready, for each runtime that is there, in turn.
 * @param slots how many are made with each.
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

/** The program says in a sentence of its own why it does not start. */
const reasonIn = (said: string): string =>
  said
    .split('\n')
    .find((line) => line.startsWith('glovebox: '))
    ?.slice('glovebox: '.length) ?? said.slice(0, 300)
