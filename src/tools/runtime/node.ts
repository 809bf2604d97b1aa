import Type from 'typebox'
import { Refusal } from '../../base/errors.ts'
import { assess } from '../../core/runtime/health.ts'
import { writeHeapDump } from '../../core/runtime/heap-dump.ts'
import { processNames, type Runtime } from '../../core/runtime/runtime.ts'
import { diskUsage, type InspectionTopic, sampleMaxMs } from '../../observe/inspect.ts'
import { type RuntimeTool, runtimeTool } from './runtime-tool.ts'

/** Which processes report. */
export const processArgument = {
  process: Type.Optional(
    Type.Unsafe<(typeof processNames)[number]>({
      type: 'string',
      enum: [...processNames],
      description: 'front serves HTTP, runner owns the slots; both by default.',
    }),
  ),
}

const sampling = (top: number) => ({
  ...processArgument,
  durationMs: Type.Optional(
    Type.Integer({ minimum: 100, maximum: sampleMaxMs, description: 'How long to sample; 3000 by default.' }),
  ),
  topN: Type.Optional(
    Type.Integer({ minimum: 1, maximum: 100, description: `Functions to return; ${top} by default.` }),
  ),
})

interface Report {
  /** Without the prefix `node_`; also available with the prefix `jvm_`. */
  name: string
  title: string
  description: string
  topic: InspectionTopic
  effect?: 'read' | 'write'
  isExpensive?: boolean
  isSensitive?: boolean
  jvm?: string | null
}

/** Defines a report of the processes. */
function report({ name, topic, jvm = name, ...definition }: Report): RuntimeTool {
  return runtimeTool({
    ...definition,
    name: `node_${name}`,
    ...(jvm !== null && { aliases: [`jvm_${jvm}`] }),
    input: processArgument,
    run: (runtime, { process }) => runtime.inspect(topic, process),
  })
}

function sampled({ name, topic, top, ...definition }: Report & { top: number }): RuntimeTool {
  return runtimeTool({
    ...definition,
    name: `node_${name}`,
    aliases: [`jvm_${name}`],
    isExpensive: true,
    input: sampling(top),
    run: (runtime, { process, durationMs = 3_000, topN = top }) =>
      runtime.inspect(topic, process, { durationMs, top: topN }),
  })
}

/** Writes a heap dump of the front. @throws Refusal `heap_dump_refused`. */
async function heapDump({ facts }: Runtime): Promise<object> {
  if (facts.heapDumpDir === '') throw new Refusal('heap_dump_refused', { problem: 'heap_dump_dir is not set' })
  return writeHeapDump(facts.heapDumpDir)
}

/** Tools for the Node.js processes: memory, event loop, garbage collection, processor time and descriptors. */
export const nodeTools: readonly RuntimeTool[] = [
  report({
    name: 'get_memory_info',
    title: 'Memory of the processes',
    description: 'Resident memory, JavaScript heap and memory of the cgroup of the front and the runner, in bytes.',
    topic: 'memory',
  }),
  report({
    name: 'get_memory_pool_details',
    title: 'Heap spaces',
    description: 'Size and use of each space of the JavaScript heap.',
    topic: 'heap_spaces',
  }),
  report({
    name: 'get_thread_info',
    title: 'Threads and active resources',
    description: 'Number of threads, size of the thread pool, and active resources by kind.',
    topic: 'threads',
  }),
  report({
    name: 'get_thread_dump',
    title: 'Stacks',
    description:
      'JavaScript and native stack and active handles of each process, at most a minute old. Blocks it for some milliseconds.',
    topic: 'stacks',
    isExpensive: true,
  }),
  sampled({
    name: 'get_hot_threads',
    title: 'Where processor time goes',
    description:
      'Samples the JavaScript of each process and returns the functions with the most time of their own. The first call in five minutes blocks each process for about a tenth of a second.',
    topic: 'cpu_profile',
    top: 5,
  }),
  sampled({
    name: 'get_top_allocators',
    title: 'What allocates memory',
    description:
      'Samples allocations and returns the functions that allocated most, at most five minutes old. Collects garbage. Contains no data.',
    topic: 'allocations',
    top: 10,
  }),
  runtimeTool({
    name: 'node_get_deadlocks',
    title: 'What is blocked',
    description: 'Late timers, a blocked database, jobs that are running, and runs that wait for a place.',
    aliases: ['jvm_get_deadlocks'],
    run: async (runtime) => {
      const { front, runner, database, engine, jobs } = await runtime.figures()
      return {
        event_loop_lag_p99_ms: { front: front.eventLoopLagP99Ms, runner: runner?.eventLoopLagP99Ms ?? null },
        database: database.problem,
        running_jobs: Object.entries(jobs).flatMap(([name, { isRunning }]) => (isRunning ? [name] : [])),
        queue: engine?.queue ?? null,
      }
    },
  }),
  report({
    name: 'get_cpu_info',
    title: 'Processor time',
    description: 'Processor time of each process, load of the machine, use of the event loop, and throttling.',
    topic: 'cpu',
  }),
  report({
    name: 'get_gc_info',
    title: 'Garbage collection',
    description: 'Number and duration of garbage collections by kind since the start.',
    topic: 'gc',
  }),
  report({
    name: 'trigger_gc',
    title: 'Collect garbage',
    description: 'Collects garbage now, which blocks the process for some milliseconds.',
    topic: 'collect_garbage',
    effect: 'write',
    isExpensive: true,
  }),
  runtimeTool({
    name: 'node_trigger_heap_dump',
    title: 'Write a heap dump',
    description:
      'Writes the JavaScript heap of the front to a file in heap_dump_dir. It contains data of callers, needs twice the memory of the heap, and blocks the process for seconds.',
    aliases: ['jvm_trigger_heap_dump'],
    effect: 'write',
    isExpensive: true,
    isSensitive: true,
    run: heapDump,
  }),
  report({
    name: 'get_class_loading_info',
    title: 'Loaded code',
    description: 'Size of the code and metadata that each process has loaded.',
    topic: 'code',
  }),
  report({
    name: 'get_runtime_info',
    title: 'Versions and uptime',
    description: 'Versions of Node.js and its libraries, process ID, arguments, start time and uptime.',
    topic: 'runtime',
  }),
  report({
    name: 'get_system_properties',
    title: 'Build and features',
    description: 'Features of Node.js, architecture, operating system and processors.',
    topic: 'properties',
  }),
  report({
    name: 'get_environment_variables',
    title: 'Environment variables',
    description:
      'Names of the environment variables of each process. Values are hidden, except some that are no secret.',
    topic: 'environment',
  }),
  report({
    name: 'get_operating_system_info',
    title: 'Operating system',
    description: 'Kernel, architecture and processors of the machine.',
    topic: 'properties',
  }),
  report({
    name: 'get_file_descriptors',
    title: 'Open files',
    description: 'Number of open descriptors by kind, and how many a process may open.',
    topic: 'descriptors',
  }),
  runtimeTool({
    name: 'node_get_disk_usage',
    title: 'Disk space',
    description: 'Free and total space of the disks of the home directory and the state directory.',
    aliases: ['jvm_get_disk_usage'],
    run: async ({ facts }) => ({ disks: await diskUsage(facts.directories) }),
  }),
  report({
    name: 'get_event_loop',
    title: 'Event loop',
    description: 'How late timers run (mean, p50, p99, maximum in milliseconds), and the use of the event loop.',
    topic: 'event_loop',
    jvm: null,
  }),
  report({
    name: 'get_active_resources',
    title: 'Active resources',
    description: 'What keeps each process alive, by kind, and its use of resources of the kernel.',
    topic: 'resources',
    jvm: null,
  }),
  runtimeTool({
    name: 'node_get_health',
    title: 'Health of the processes',
    description: 'Issues of the heap, the event loop and open files of both processes, with suggested actions.',
    run: async (runtime) => assess('runtime', await runtime.figures()),
  }),
]
