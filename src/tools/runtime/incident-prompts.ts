import type { Diagnosis } from './prompts.ts'

const keyword = { name: 'keyword', description: 'A text that entries of the log must contain.' }
const modules = { name: 'expectedModules', description: 'Modules that must be enabled, separated by commas.' }

/** Prompts for incidents, and for what only a server of sandboxes has. */
export const incidents: readonly Diagnosis[] = [
  {
    name: 'incident_triage',
    title: 'What is broken now?',
    description: 'The first minutes of an incident.',
    task: 'Something is broken. Find out what, and whom it affects, in as few calls as possible.',
    steps: [
      { tool: 'system_get_health', lookFor: 'The issues with severity critical come first.' },
      { tool: 'logging_get_last_error', lookFor: 'Note the cause.' },
      { tool: 'performance_get_snapshot', lookFor: 'Compare the endings of the latest runs.' },
      { tool: 'app_get_summary', lookFor: 'Note which organizations have active runs.' },
    ],
    report: 'State what is broken, who is affected, since when, and the next step.',
  },
  {
    name: 'error_spike_response',
    title: 'Why are there more errors?',
    description: 'Examines a sudden rise of errors.',
    arguments: [keyword],
    task: 'Errors have risen. Find the cause. Text: {keyword}',
    steps: [
      { tool: 'logging_get_health', lookFor: 'Note the number of errors.' },
      {
        tool: 'logging_search_entries',
        with: { keyword: '{keyword}', level: 'error' },
        lookFor: 'Skip without a text.',
      },
      { tool: 'logging_read_entries', with: { level: 'error', limit: 50 }, lookFor: 'Find the first of its kind.' },
      { tool: 'routes_get_all', with: { sortBy: 'errors', limit: 10 }, lookFor: 'Note the routes concerned.' },
      { tool: 'executor_get_stats', lookFor: 'Compare with slots that could not be made.' },
    ],
    report: 'State the first error, its cause, and what stops it.',
  },
  {
    name: 'cascade_failure_diagnosis',
    title: 'Which failure caused the others?',
    description: 'Separates a cause from its consequences.',
    task: 'Several parts fail. Find the one that makes the others fail.',
    steps: [
      { tool: 'system_get_health', lookFor: 'List the parts with issues.' },
      { tool: 'node_get_disk_usage', lookFor: 'A full disk breaks the database first, then all calls.' },
      { tool: 'datasource_get_health', lookFor: 'Without the database no call is answered.' },
      { tool: 'executor_get_health', lookFor: 'Without slots runs queue, then requests are refused.' },
      { tool: 'http_get_health', lookFor: 'An upstream that is down affects its own calls alone.' },
      { tool: 'logging_read_entries', with: { level: 'warn', limit: 100 }, lookFor: 'Order the events by time.' },
    ],
    report: 'Draw the chain from the first failure to the last, and name the link to fix.',
  },
  {
    name: 'rollback_decision',
    title: 'Go back to the earlier version?',
    description: 'Decides whether an upgrade must be undone.',
    arguments: [modules],
    task: 'Decide whether to go back to the earlier version. Modules that must be enabled: {expectedModules}',
    steps: [
      { tool: 'runtime_get_info', lookFor: 'Note the version and the uptime.' },
      { tool: 'module_get_all', lookFor: 'Check the expected modules.' },
      { tool: 'node_get_memory_info', lookFor: 'Use of the heap: below 70 % is good, above 85 % is not.' },
      { tool: 'undertow_get_stats', lookFor: 'Share of failed responses: below 1 % is good, above 5 % is not.' },
      { tool: 'system_get_health', lookFor: 'Note issues that began with the upgrade.' },
    ],
    report:
      'Answer: go back, wait, or stay, with the figures. A database of a newer version cannot be opened by an earlier one.',
  },
  {
    name: 'post_incident_review',
    title: 'What happened?',
    description: 'Collects the facts after an incident.',
    arguments: [keyword],
    task: 'Collect the facts for a review. Text: {keyword}',
    steps: [
      {
        tool: 'logging_search_entries',
        with: { keyword: '{keyword}', limit: 200 },
        lookFor: 'Note the order of events.',
      },
      { tool: 'logging_read_entries', with: { level: 'warn', limit: 200 }, lookFor: 'Note what preceded them.' },
      { tool: 'requests_get_slow_requests', lookFor: 'Note what became slow, and when.' },
      { tool: 'sql_get_slow_queries', lookFor: 'Compare the times.' },
      { tool: 'scheduler_get_all_tasks', lookFor: 'Note tasks that failed.' },
      { tool: 'system_get_health', lookFor: 'Note what is not repaired yet.' },
    ],
    report: 'Write a timeline, the cause, what made it worse, and what would have shown it earlier.',
  },
  {
    name: 'sandbox_leak_investigation',
    title: 'Do sandboxes remain?',
    description: 'Looks for slots and mounts that are not released.',
    task: 'Find out whether slots, mounts or runs remain after their work.',
    steps: [
      { tool: 'executor_get_stats', lookFor: 'undying slots could not be removed.' },
      { tool: 'executor_get_all', lookFor: 'Compare active slots with active runs, and mounted filesystems.' },
      { tool: 'app_get_summary', lookFor: 'Note runs in one state for long.' },
      { tool: 'node_get_file_descriptors', lookFor: 'A number that grows is a leak.' },
      {
        tool: 'logging_search_entries',
        with: { keyword: 'slot', process: 'runner' },
        lookFor: 'Note removals that failed.',
      },
    ],
    report: 'State what remains, since when, and how to remove it.',
  },
  {
    name: 'sandbox_start_failure_diagnosis',
    title: 'Why do sandboxes not start?',
    description: 'Finds the reason for which slots cannot be created.',
    task: 'Slots cannot be created. Find the reason.',
    steps: [
      { tool: 'executor_get_health', lookFor: 'SANDBOX_START_FAILURES has the last reason.' },
      { tool: 'executor_get_stats', lookFor: 'Note the runtime, and made and failed slots.' },
      {
        tool: 'logging_read_entries',
        with: { process: 'runner', level: 'error', limit: 20 },
        lookFor: 'Note the causes.',
      },
      { tool: 'node_get_disk_usage', lookFor: 'A full state directory prevents slots.' },
      { tool: 'node_get_memory_info', with: { process: 'runner' }, lookFor: 'Too little memory prevents slots.' },
    ],
    report: 'Name the reason and the remedy; glovebox doctor on the machine checks the remedy.',
  },
  {
    name: 'isolation_posture_audit',
    title: 'How strong is the isolation?',
    description: 'Examines what separates tenants on this machine.',
    task: 'Audit what separates the runs of different organizations.',
    steps: [
      { tool: 'app_get_health', lookFor: 'ISOLATION_DEGRADED names vulnerabilities of the processors.' },
      {
        tool: 'executor_get_stats',
        lookFor: 'Note the version of the OCI runtime, and compare it with its advisories.',
      },
      {
        tool: 'runtime_config_diff',
        lookFor: 'Judge settings that widen access: dev, host, allowed_hosts, outbound_allow.',
      },
      { tool: 'node_get_operating_system_info', lookFor: 'Note the release of the kernel.' },
    ],
    report: 'Report what separates runs, what weakens it on this machine, and what to change.',
  },
  {
    name: 'tenant_noisy_neighbor',
    title: 'Does one tenant slow down others?',
    description: 'Finds an organization that uses most of the server.',
    task: 'Find out whether one organization takes capacity from the others.',
    steps: [
      { tool: 'app_get_summary', lookFor: 'Compare the active runs of organizations.' },
      { tool: 'executor_get_all', lookFor: 'Note whether runs wait.' },
      { tool: 'requests_get_slow_requests', lookFor: 'Note what became slow.' },
      { tool: 'runtime_get_config_value', with: { path: 'runs_per_org' }, lookFor: 'It limits one organization.' },
    ],
    report: 'Name the organization, if there is one, and the limit that would stop it.',
  },
]
