import type { JobState } from '../../base/background-job.ts'
import type { DiskUsage } from '../../observe/inspect.ts'
import type { Vitals } from '../../observe/process-vitals.ts'
import type { RunFigures } from '../../observe/recent-runs.ts'
import type { EngineReport } from '../../runner/protocol/messages.ts'
import { checks } from './health-checks.ts'

export type Severity = 'info' | 'warning' | 'critical'

/** Parts of the server. The health of the whole is that of its worst part. */
export const subsystems = [
  'runtime',
  'executors',
  'sandboxes',
  'datasources',
  'disks',
  'schedulers',
  'webServer',
  'upstreams',
  'logging',
] as const
export type Subsystem = (typeof subsystems)[number]

/** One problem, with what an operator can do about it. */
export interface HealthIssue {
  severity: Severity
  code: string
  message: string
  suggestedAction: string
  /** What the problem concerns, such as a process, a disk or an upstream. */
  entity: string
  entityMetrics: Readonly<Record<string, number | string | boolean | null>>
}

export interface HealthReport {
  status: 'healthy' | 'warning' | 'critical'
  /** 0 to 100. */
  score: number
  issues: HealthIssue[]
  scoreBreakdown: { base: number; deductions: { code: string; severity: Severity; penalty: number }[] }
}

/** What health is derived from. Figures of the latest work cover ten minutes. */
export interface HealthFigures {
  /** Why no run can start; `null` if runs can start. */
  notReady: string | null
  front: Vitals
  /** `null` while no runner is connected. */
  runner: Vitals | null
  engine: EngineReport | null
  runs: RunFigures
  /** The setting `queue_wait_s`, in milliseconds. */
  queueWaitMaxMs: number
  database: { problem: string | null; walBytes: number }
  disks: Readonly<Record<string, DiskUsage | null>>
  jobs: Readonly<Record<string, JobState>>
  upstreams: Readonly<Record<string, { calls: number; failing: number }>>
  /** How often in a row the program of an upstream has ended by itself. */
  crashes: Readonly<Record<string, number>>
  /** Profiles whose packages could not be installed. */
  packagesFailed: readonly string[]
  slow: { queries: number; requests: number; outbound: number }
  answers: { calls: number; failures: number }
  connections: { open: number; max: number }
  /** Errors in the logs of both processes. */
  errors: number
}

const penalties: Readonly<Record<Severity, number>> = { info: 5, warning: 25, critical: 50 }

/** Summarizes issues. */
export function toReport(issues: readonly HealthIssue[]): HealthReport {
  const deductions = issues.map(({ code, severity }) => ({ code, severity, penalty: penalties[severity] }))
  const penalty = deductions.reduce((sum, deduction) => sum + deduction.penalty, 0)
  const worst = (severity: Severity) => issues.some((issue) => issue.severity === severity)
  return {
    status: worst('critical') ? 'critical' : worst('warning') ? 'warning' : 'healthy',
    score: Math.max(100 - penalty, 0),
    issues: [...issues].sort((a, b) => penalties[b.severity] - penalties[a.severity]),
    scoreBreakdown: { base: 100, deductions },
  }
}

/** Assesses one part of the server. */
export const assess = (subsystem: Subsystem, figures: HealthFigures): HealthReport =>
  toReport(checks[subsystem](figures))

/** Assesses the whole server: its score is that of its worst part, and codes have the part as a prefix. */
export function assessAll(figures: HealthFigures): HealthReport & { subsystems: Record<Subsystem, number> } {
  const reports = subsystems.map((name) => [name, assess(name, figures)] as const)
  const scores = Object.fromEntries(reports.map(([name, { score }]) => [name, score])) as Record<Subsystem, number>
  const issues = reports.flatMap(([name, report]) =>
    report.issues.map((issue) => ({ ...issue, code: `${name}:${issue.code}` })),
  )
  return { ...toReport(issues), score: Math.min(...Object.values(scores)), subsystems: scores }
}
