import { Session } from 'node:inspector/promises'
import { setTimeout as sleep } from 'node:timers/promises'
import { CpuProfiler } from './cpu-profiler.ts'

/** A function in which the process spends time or memory. */
export interface HotSpot {
  function: string
  /** File below the program and line. */
  at: string
}

const cpuProfiler = new CpuProfiler()

/**
 * Samples the JavaScript that runs in this process.
 * @returns the functions with the most time of their own, and how long the process stood still for the profile.
 */
export async function cpuProfile(durationMs: number, top: number): Promise<object> {
  const { profile, pausedMs } = await cpuProfiler.profile(durationMs)
  const msOf = new Map<string, HotSpot & { self_ms: number }>()
  const deltas = profile.timeDeltas ?? []
  const nodes = new Map(profile.nodes.map((node) => [node.id, node]))
  for (const [at, id] of (profile.samples ?? []).entries()) {
    const node = nodes.get(id)
    if (node) addTo(msOf, node.callFrame, 'self_ms', Math.max(deltas[at] ?? 0, 0) / 1000)
  }
  const spots = largest([...msOf.values()], 'self_ms', top)
  const samples = profile.samples?.length ?? 0
  return { duration_ms: durationMs, paused_ms: rounded(pausedMs), samples, hot_functions: spots }
}

/** Between two samples of allocations, in bytes: enough of them for a ranking from a process that does little. */
const allocatedBytes = 32 * 1024

/**
 * Samples allocations, also of objects that are gone again. V8 collects garbage before it returns them.
 * @returns the functions that allocated most, with an estimate, and how long the process stood still for it.
 */
export async function allocations(durationMs: number, top: number): Promise<object> {
  const session = new Session()
  session.connect()
  try {
    await session.post('HeapProfiler.enable')
    await session.post('HeapProfiler.startSampling', {
      samplingInterval: allocatedBytes,
      includeObjectsCollectedByMajorGC: true,
      includeObjectsCollectedByMinorGC: true,
    })
    await sleep(durationMs)
    const startedMs = performance.now()
    const { profile } = await session.post('HeapProfiler.stopSampling')
    const pausedMs = performance.now() - startedMs
    const bytesOf = new Map<string, HotSpot & { bytes: number }>()
    const visit = (node: typeof profile.head): void => {
      if (node.selfSize > 0) addTo(bytesOf, node.callFrame, 'bytes', node.selfSize)
      for (const child of node.children) visit(child)
    }
    visit(profile.head)
    const spots = largest([...bytesOf.values()], 'bytes', top)
    return { duration_ms: durationMs, paused_ms: rounded(pausedMs), allocators: spots }
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
    .map((spot) => ({ ...spot, [field]: rounded(spot[field]) }))

const rounded = (amount: number): number => Math.round(amount * 100) / 100
