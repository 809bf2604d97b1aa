import { incidents } from './incident-prompts.ts'
import { performancePrompts } from './performance-prompts.ts'
import type { Diagnosis, Step } from './prompts.ts'

const health: Step = { tool: 'system_get_health', lookFor: 'Note the status, the score and every issue with its code.' }
const snapshot: Step = {
  tool: 'performance_get_snapshot',
  lookFor: 'Note late timers, memory, the latest runs by ending, slots, the queue and slow calls.',
}
const lastError: Step = { tool: 'logging_get_last_error', lookFor: 'Note its time, its process and its causes.' }

const keyword = { name: 'keyword', description: 'A text that entries of the log must contain.' }
const modules = { name: 'expectedModules', description: 'Modules that must be enabled, separated by commas.' }

const findings = 'Report the findings, most severe first: what is wrong, the figures that show it, and what to do.'

/** The audits and diagnoses, by name. */
export const diagnoses: readonly Diagnosis[] = [
  {
    name: 'runtime_health_check',
    title: 'Is the server healthy?',
    description: 'A short check of the whole server.',
    task: 'Find out whether the server is healthy.',
    steps: [health, { tool: 'runtime_get_info', lookFor: 'Note the version, the uptime and whether it is ready.' }],
    report: 'Answer in three sentences: the status, the most severe issue, and what to do about it.',
  },
  {
    name: 'full_system_audit',
    title: 'Audit of the whole server',
    description: 'Goes through every part of the server.',
    task: 'Audit every part of the server.',
    steps: [
      health,
      { tool: 'runtime_config_diff', lookFor: 'Judge whether the changed settings fit together and fit the machine.' },
      snapshot,
      { tool: 'executor_get_all', lookFor: 'Compare active and waiting runs with the limits.' },
      { tool: 'scheduler_get_all_tasks', lookFor: 'Look for tasks that fail, are paused, or take long.' },
      { tool: 'datasource_get_all', lookFor: 'Look for a database that cannot be written or has a large log.' },
      { tool: 'routes_get_summary', lookFor: 'Note the slowest route and the one with most errors.' },
      { tool: 'http_get_clients', lookFor: 'Look for upstreams that fail or are slow.' },
      { tool: 'node_get_disk_usage', lookFor: 'Note the free space of each disk.' },
      lastError,
    ],
    report: findings,
  },
  {
    name: 'performance_troubleshooting',
    title: 'Why is it slow?',
    description: 'Finds the cause of a slow server.',
    arguments: [{ name: 'symptom', description: 'What is slow, and since when.', required: true }],
    task: 'Find the cause of this symptom: {symptom}',
    steps: [
      snapshot,
      { tool: 'executor_get_all', lookFor: 'Runs that wait in the queue mean too few places or slots.' },
      { tool: 'routes_get_all', with: { sortBy: 'avgLatency', limit: 20 }, lookFor: 'Note the slowest routes.' },
      { tool: 'sql_get_slow_queries', lookFor: 'Slow statements mean a slow disk or a missing index.' },
      { tool: 'slow_http_get_calls', lookFor: 'Slow upstreams make their calls slow, and nothing else.' },
      { tool: 'node_get_cpu_info', lookFor: 'Note the load of the machine and throttling by a cgroup.' },
      { tool: 'node_get_event_loop', lookFor: 'Late timers mean that a process is occupied.' },
    ],
    report: 'Name the most probable cause, the figures that show it, and what to change.',
  },
  {
    name: 'diagnose_memory_pressure',
    title: 'Where does memory go?',
    description: 'Examines the memory of the processes and of the machine.',
    arguments: [{ name: 'threshold', description: 'Use of the heap in percent that is too much.', byDefault: '80' }],
    task: 'Find out whether a process uses more than {threshold} % of its heap, and what holds the memory.',
    steps: [
      {
        tool: 'node_get_memory_info',
        lookFor: 'Compare used_heap_size with heap_size_limit, and rss with the machine.',
      },
      { tool: 'node_get_memory_pool_details', lookFor: 'A large old_space holds objects that live long.' },
      { tool: 'node_get_gc_info', lookFor: 'Frequent major collections mean that the heap is nearly full.' },
      { tool: 'executor_get_stats', lookFor: 'Each idle slot holds memory of the machine.' },
      { tool: 'undertow_get_stats', lookFor: 'buffer_bytes is memory of bodies and unread responses.' },
    ],
    report: findings,
  },
  {
    name: 'executor_saturation_check',
    title: 'Are there enough slots?',
    description: 'Examines the queue and the slots.',
    task: 'Find out whether runs wait because places or slots are used up.',
    steps: [
      { tool: 'executor_get_health', lookFor: 'Note the codes of slots and of the queue.' },
      { tool: 'executor_get_all', lookFor: 'Compare active with max.' },
      { tool: 'executor_get_stats', lookFor: 'Note slots that could not be made, and why.' },
      { tool: 'app_get_summary', lookFor: 'Note whether one organization has most of the active runs.' },
    ],
    report: 'State which limit is reached, if any, and which setting to raise: runs_max, slots_max or slots_ready.',
  },
  {
    name: 'deployment_validation',
    title: 'Does a new deployment work?',
    description: 'Checks a server after its start or an upgrade.',
    arguments: [modules],
    task: 'Check that the server works after its start. Modules that must be enabled: {expectedModules}',
    steps: [
      { tool: 'runtime_get_info', lookFor: 'Check the version and that it is ready.' },
      { tool: 'module_get_all', lookFor: 'Check that the expected modules are enabled.' },
      { tool: 'runtime_config_diff', lookFor: 'Check that the settings are those that were intended.' },
      { tool: 'datasource_test', with: { dsn: 'metadata' }, lookFor: 'It must be ok.' },
      health,
      lastError,
    ],
    report: 'Answer whether the deployment works. If not, name what fails.',
  },
  {
    name: 'thread_dump_analysis',
    title: 'What is a process doing?',
    description: 'Reads the stacks of both processes.',
    task: 'Find out what the processes are doing now.',
    steps: [
      { tool: 'node_get_thread_info', lookFor: 'Note the active resources.' },
      { tool: 'node_get_thread_dump', lookFor: 'Read the JavaScript stack; handles show what it waits for.' },
      { tool: 'node_get_deadlocks', lookFor: 'Note what blocks others.' },
    ],
    report: 'State what each process does, and whether something is blocked.',
  },
  {
    name: 'investigate_errors',
    title: 'What do the errors mean?',
    description: 'Reads the errors in the logs.',
    arguments: [{ name: 'loggerName', description: 'front or runner.', byDefault: '' }, keyword],
    task: 'Explain the errors in the logs. Process: {loggerName}. Text: {keyword}',
    steps: [
      lastError,
      {
        tool: 'logging_read_entries',
        with: { process: '{loggerName}', level: 'warn', limit: 50 },
        lookFor: 'Group entries with the same message.',
      },
      {
        tool: 'logging_search_entries',
        with: { keyword: '{keyword}', process: '{loggerName}' },
        lookFor: 'Skip this step without a text. Follow one trace_id through both processes.',
      },
    ],
    report: 'For each kind of error: how often, since when, its cause, and what to do.',
  },
  {
    name: 'logging_infrastructure_review',
    title: 'Are the logs usable?',
    description: 'Examines levels, formats and errors of the logs.',
    task: 'Review how this server logs.',
    steps: [
      { tool: 'logging_get_info', lookFor: 'Note the level of each process and the number of errors.' },
      { tool: 'logging_get_appenders', lookFor: 'Programs that collect logs need the format json.' },
      { tool: 'logging_read_entries', with: { limit: 20 }, lookFor: 'Judge whether the level fits.' },
    ],
    report: findings,
  },
  {
    name: 'class_loader_diagnostics',
    title: 'What code is loaded?',
    description: 'Examines the code that the processes have loaded.',
    task: 'Find out how much code the processes have loaded, and which version.',
    steps: [
      { tool: 'node_get_class_loading_info', lookFor: 'Note the size of code and bytecode.' },
      { tool: 'node_get_runtime_info', lookFor: 'Note the versions and the arguments of Node.js.' },
      { tool: 'module_get_all', lookFor: 'Note the enabled toolsets.' },
    ],
    report: findings,
  },
  {
    name: 'jvm_resource_audit',
    title: 'Resources of the processes',
    description: 'Examines memory, processor time, files and disks.',
    task: 'Audit the resources that both processes use.',
    steps: [
      { tool: 'node_get_memory_info', lookFor: 'Compare with the limits.' },
      { tool: 'node_get_cpu_info', lookFor: 'Note load and throttling.' },
      { tool: 'node_get_gc_info', lookFor: 'Note the time in collections.' },
      { tool: 'node_get_file_descriptors', lookFor: 'Compare with the limit.' },
      { tool: 'node_get_active_resources', lookFor: 'Look for kinds that grow.' },
      { tool: 'node_get_disk_usage', lookFor: 'Note the free space.' },
    ],
    report: findings,
  },
  {
    name: 'cpu_profiling',
    title: 'Where does processor time go?',
    description: 'Samples both processes.',
    arguments: [
      { name: 'durationMs', description: 'How long to sample, in milliseconds.', byDefault: '3000' },
      { name: 'topN', description: 'How many functions to return.', byDefault: '10' },
    ],
    task: 'Find the functions that use the processor.',
    steps: [
      { tool: 'node_get_cpu_info', lookFor: 'Note the load before sampling.' },
      {
        tool: 'node_get_hot_threads',
        with: { durationMs: '{durationMs}', topN: '{topN}' },
        lookFor: '(idle) and (program) are no work of the server.',
      },
      { tool: 'node_get_event_loop', lookFor: 'Compare the share that was active.' },
    ],
    report: 'List the functions with their share, and what they belong to.',
  },
  {
    name: 'module_audit',
    title: 'Which modules are there?',
    description: 'Lists toolsets and drivers.',
    task: 'List what this server offers.',
    steps: [
      { tool: 'module_get_all', lookFor: 'Note what is disabled.' },
      { tool: 'runtime_get_bif_summary', lookFor: 'Count the tools of each toolset.' },
      { tool: 'runtime_get_component_summary', lookFor: 'Note the interpreters and their versions.' },
    ],
    report: 'List modules with their state, and languages with their version.',
  },
  {
    name: 'scheduler_status_report',
    title: 'Do the background tasks work?',
    description: 'Examines the background tasks.',
    arguments: [{ name: 'schedulerName', description: 'Name of the scheduler.', byDefault: 'front' }],
    task: 'Report on the tasks of the scheduler {schedulerName}.',
    steps: [
      { tool: 'scheduler_get_health', lookFor: 'Note tasks that fail or are paused.' },
      { tool: 'scheduler_get', with: { schedulerName: '{schedulerName}' }, lookFor: 'Note durations and problems.' },
    ],
    report: findings,
  },
  {
    name: 'application_lifecycle_status',
    title: 'What runs now?',
    description: 'Lists active runs and their endings.',
    task: 'Report on the runs that are active and those that ended in the last minutes.',
    steps: [
      { tool: 'app_get_summary', lookFor: 'Note states, organizations and endings.' },
      { tool: 'app_get_all', with: { limit: 50 }, lookFor: 'Note runs that are queued or preparing.' },
      { tool: 'app_get_health', lookFor: 'Note the rates of failures and memory.' },
    ],
    report: findings,
  },
  {
    name: 'http_connectivity_audit',
    title: 'Do outgoing calls work?',
    description: 'Examines upstreams and webhooks.',
    task: 'Find upstreams and webhook receivers that fail or are slow.',
    steps: [
      { tool: 'http_get_health', lookFor: 'Note upstreams that are down.' },
      { tool: 'http_get_clients', lookFor: 'Compare failures with calls.' },
      { tool: 'slow_http_get_calls', lookFor: 'Note which calls are slow.' },
      { tool: 'scheduler_get_task_info', with: { taskName: 'deliver_webhooks' }, lookFor: 'It must not fail.' },
    ],
    report: findings,
  },
  {
    name: 'bif_component_discovery',
    title: 'Which tool does that?',
    description: 'Finds tools, programs and packages by a word.',
    arguments: [{ name: 'keyword', description: 'What to look for.' }],
    task: 'Find what this server has for: {keyword}',
    steps: [
      { tool: 'runtime_search_bifs', with: { keyword: '{keyword}' }, lookFor: 'Note the matching tools.' },
      { tool: 'runtime_search_components', with: { keyword: '{keyword}' }, lookFor: 'Note programs and packages.' },
      { tool: 'runtime_get_bif_summary', lookFor: 'Without a word, choose from this list.' },
    ],
    report: 'List what fits, with the arguments that it needs.',
  },
  {
    name: 'application_debug_assistant',
    title: 'What is wrong with this run?',
    description: 'Examines one active run.',
    arguments: [{ name: 'appName', description: 'ID of the run (trace_id).', required: true }],
    task: 'Find out what the run {appName} is waiting for or why it fails.',
    steps: [
      { tool: 'app_has', with: { appName: '{appName}' }, lookFor: 'A run that has ended is not active.' },
      { tool: 'logging_search_entries', with: { keyword: '{appName}' }, lookFor: 'Note errors of the runner.' },
      { tool: 'executor_get_all', lookFor: 'A queued run waits for a place or a slot.' },
    ],
    report: 'State what the run does or why it ended, and what to do.',
  },
  {
    name: 'analyze_cache_performance',
    title: 'Do the caches help?',
    description: 'Examines the caches of the front.',
    arguments: [{ name: 'cacheName', description: 'One cache; without it all are examined.' }],
    task: 'Examine the caches. Cache: {cacheName}',
    steps: [
      { tool: 'cache_get_all', lookFor: 'Compare size with max.' },
      { tool: 'cache_get_health', lookFor: 'A full cache is too small.' },
    ],
    report: findings,
  },
  ...performancePrompts,
  ...incidents,
]
