import type { Language } from '../src/base/run.ts'
import { median } from './figures.ts'
import type { Answer } from './glovebox-server.ts'

/** Phases of one call: medians of the timings in our responses, one call at a time. */
export interface Phases {
  language: Language
  gapMs: number
  queueMs: number
  slotMs: number
  jailMs: number
  runMs: number
  /** The rest of the client's wait: HTTP, front, database, and the connection to the runner. */
  restMs: number
  totalMs: number
}

/** The phases of one call. */
type Call = Omit<Phases, 'language' | 'gapMs'>

export class PhaseLog {
  readonly #calls = new Map<string, { language: Language; gapMs: number; calls: Call[] }>()

  add(language: Language, gapMs: number, { timings }: Answer, totalMs: number): void {
    const { queue_ms: queueMs, slot_ms: slotMs, run_ms, drain_ms } = timings
    const [jailMs, runMs] = [timings.jail_ms + timings.host_ms, run_ms + drain_ms]
    const restMs = totalMs - queueMs - slotMs - jailMs - runMs
    const key = `${language} ${gapMs}`
    const group = this.#calls.get(key) ?? { language, gapMs, calls: [] }
    this.#calls.set(key, group)
    group.calls.push({ queueMs, slotMs, jailMs, runMs, restMs, totalMs })
  }

  medians(): Phases[] {
    return [...this.#calls.values()].map(({ language, gapMs, calls }) => {
      const of = (name: keyof Call) => median(calls.map((call) => call[name]))
      const [queueMs, slotMs, jailMs, runMs] = [of('queueMs'), of('slotMs'), of('jailMs'), of('runMs')]
      return { language, gapMs, queueMs, slotMs, jailMs, runMs, restMs: of('restMs'), totalMs: of('totalMs') }
    })
  }
}
