import { Session } from 'node:inspector/promises'
import { setTimeout as sleep } from 'node:timers/promises'

/** A function in which the process spends time or memory. */
export interface HotSpot {
  function: string
  /** File below the program and line. */
  at: string
}

/** The default of V8 is a fifth of this: more samples than a ranking of functions needs. */
const samplingUs = 5_000

/**
 * Samples the JavaScript that runs in this process.
 * @returns the functions with the most time of their own.
 */
export async function cpuProfile(durationMs: number, top: number): Promise<object> {
  const { profile } = await withSession(async (session) => {
    await session.post('Profiler.enable')
    await session.post('Profiler.setSamplingInterval', { interval: samplingUs })
    await session.post('Profiler.start')
    await sleep(durationMs)
    return session.post('Profiler.stop')
  })
  const msOf = new Map<string, HotSpot & { self_ms: number }>()
  const deltas = profile.timeDeltas ?? []
  const nodes = new Map(profile.nodes.map((node) => [node.id, node]))
  for (const [at, id] of (profile.samples ?? []).entries()) {
    const node = nodes.get(id)
    if (node) addTo(msOf, node.callFrame, 'self_ms', Math.max(deltas[at] ?? 0, 0) / 1000)
  }
  const spots = largest([...msOf.values()], 'self_ms', top)
  return { duration_ms: durationMs, samples: profile.samples?.length ?? 0, hot_functions: spots }
}

/** Samples allocations. @returns the functions that allocated most. */
export async function allocations(durationMs: number, top: number): Promise<object> {
  const { profile } = await withSession(async (session) => {
    await session.post('HeapProfiler.enable')
    await session.post('HeapProfiler.startSampling')
    await sleep(durationMs)
    return session.post('HeapProfiler.stopSampling')
  })
  const bytesOf = new Map<string, HotSpot & { bytes: number }>()
  const visit = (node: typeof profile.head): void => {
    addTo(bytesOf, node.callFrame, 'bytes', node.selfSize)
    for (const child of node.children) visit(child)
  }
  visit(profile.head)
  return { duration_ms: durationMs, allocators: largest([...bytesOf.values()], 'bytes', top) }
}

async function withSession<Result>(work: (session: Session) => Promise<Result>): Promise<Result> {
  const session = new Session()
  session.connect()
  try {
    return await work(session)
  } finally {
    session.disconnect()
  }
}

interface Frame {
  functionName: string
  url: string
  lineNumber: number
}

function addTo<Field extends string>(
  sums: Map<string, HotSpot & Record<Field, number>>,
  { functionName, url, lineNumber }: Frame,
  field: Field,
  amount: number,
): void {
  const at = url === '' ? '' : `${url.replace(/^.*\/(?=(?:src|node_modules)\/)/, '')}:${lineNumber + 1}`
  const name = functionName || '(anonymous)'
  const known = sums.get(`${name} ${at}`)
  if (known) known[field] = (known[field] + amount) as (typeof known)[Field]
  else sums.set(`${name} ${at}`, { function: name, at, [field]: amount } as HotSpot & Record<Field, number>)
}

const largest = <Field extends string>(
  spots: (HotSpot & Record<Field, number>)[],
  field: Field,
  top: number,
): HotSpot[] =>
  spots
    .sort((a, b) => b[field] - a[field])
    .slice(0, top)
    .map((spot) => ({ ...spot, [field]: Math.round(spot[field] * 100) / 100 }))
