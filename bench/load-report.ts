import type { Burst } from './burst.ts'
import { shown, table } from './figures.ts'
import type { Answered, Overload } from './overload.ts'

/** Served runs of the organization that got fewer, divided by those of the other: at least this is called fair. */
const fairFrom = 0.8
/** More than this many times its longest waits alone is called a violation, unless the heavy organization waits longer. */
const ruinedFrom = 3

/** Formats the behavior under overload, each property with its verdict. */
export function loadPart(burst: Burst | undefined, overload: Overload | undefined): string {
  return [
    '## Overload',
    ...(burst ? [burstPart(burst)] : []),
    ...(overload ? [overloadPart(overload), verdictsPart(overload)] : []),
  ].join('\n\n')
}

function burstPart({ runs, refusals, failures, firstMs, p50Ms, lastMs, bareLastMs }: Burst): string {
  const header = [`${runs} at once from idle`, 'all answered ÷ bare', 'rejected with retry delay', 'failed', 'first ms']
  const cells = ['python: glovebox REST', `**${shown(lastMs / bareLastMs)}**`, String(refusals), String(failures)]
  return table([...header, 'p50 ms', 'last ms'], [[...cells, ...[firstMs, p50Ms, lastMs].map(shown)]])
}

function overloadPart({ capacityPerSecond, equal, alone, light, heavy }: Overload): string {
  const header = ['steady load', 'calls/s', 'served', 'rejected with retry delay', 'failed', 'p50 ms', 'p99 ms']
  const line = (name: string, { callsPerSecond, served, refused, failed, p50Ms, p99Ms }: Answered) => [
    ...[name, shown(callsPerSecond), String(served), String(refused), String(failed), shown(p50Ms), shown(p99Ms)],
  ]
  const lines = [
    line('one of two equal organizations', equal[0]),
    line('the other', equal[1]),
    line('a light organization, alone', alone),
    line('the light organization beside a heavy one', light),
    line('the heavy one', heavy),
  ]
  return `${table(header, lines)}\n\nThe load is twice the ${shown(capacityPerSecond)} runs per second that were served without a queue.`
}

function verdictsPart({ equal, alone, light, heavy }: Overload): string {
  const all = [...equal, alone, light, heavy]
  const failed = all.reduce((sum, answered) => sum + answered.failed, 0)
  const served = equal.map((answered) => answered.served)
  const share = Math.min(...served) / Math.max(...served)
  const turnedAway = equal.map(({ served, refused }) => refused / (served + refused))
  const verdicts: [property: string, figure: string, holds: boolean][] = [
    [
      'the load exceeded the capacity (otherwise the measured capacity was too low, and the other rows are meaningless)',
      `${shown(Math.min(...turnedAway) * 100)} % rejected with a retry delay`,
      Math.min(...turnedAway) > 0,
    ],
    ['every rejection is a 503 with a retry delay, and nothing else fails', `${failed} others`, failed === 0],
    ['two equal organizations are served equally', `${shown(share)} of the other`, share >= fairFrom],
    ['a light organization is never rejected beside a heavy one', `${light.refused} refused`, light.refused === 0],
    [
      `the longest waits of a light organization are below the median of the heavy one, or below ${ruinedFrom} × its own alone`,
      `${shown(light.p99Ms / heavy.p50Ms)} of them, ${shown(light.p99Ms / alone.p99Ms)} × alone`,
      light.p99Ms < Math.max(heavy.p50Ms, ruinedFrom * alone.p99Ms),
    ],
  ]
  return table(
    ['property', 'figure', 'verdict'],
    verdicts.map(([property, figure, holds]) => [property, figure, holds ? 'holds' : '**does not hold**']),
  )
}
