import Type, { type Static } from 'typebox'
import { Finding, findingLines, type Shown, workspaceTool } from './workspace-tool.ts'

const timeout = (byDefault: number, maximum: number) =>
  Type.Optional(Type.Integer({ minimum: 1, maximum, description: `Time limit in seconds. Default: ${byDefault}.` }))
const language = Type.Optional(
  Type.Enum(['go', 'rust', 'node', 'python'], {
    description: 'Needed where the workspace has projects of several languages.',
  }),
)

const Report = Type.Object({
  command: Type.String(),
  stdout: Type.String(),
  stderr: Type.String(),
  exit: Type.Integer(),
  timed_out: Type.Boolean(),
  findings: Type.Array(Finding),
  language: Type.Optional(Type.String()),
})

/** Time in which the program is killed after its own limit. */
const graceMs = 15_000

function showReport(
  { command, stdout, stderr, exit, timed_out, findings }: Static<typeof Report>,
  seconds: number,
): Shown {
  const parts = [`$ ${command}`, stdout.trimEnd()]
  if (stderr.trim() !== '') parts.push('--- stderr ---', stderr.trimEnd())
  if (timed_out) parts.push(`timed out after ${seconds}s`)
  if (findings.length > 0) parts.push(`--- findings (${findings.length}) ---`, findingLines(findings))
  parts.push(`exit: ${exit}`)
  return {
    text: parts.filter((part) => part !== '').join('\n'),
    structured: { exit_code: exit, timed_out, findings },
    isError: exit !== 0,
  }
}

export const runTestsTool = workspaceTool({
  name: 'run_tests',
  title: 'Run the tests',
  readOnly: false,
  description:
    'Run the tests of the project, which is detected by its files (Go, Rust, Node.js, Python), and return the failures as findings with file and line.',
  input: { timeout: timeout(300, 1800), language },
  reply: Report,
  call: ({ timeout: seconds = 300, language }) => ({
    op: 'tests',
    args: { timeout: seconds, ...(language && { language }) },
    timeoutMs: seconds * 1000 + graceMs,
  }),
  show: (report, { timeout: seconds = 300 }) => showReport(report, seconds),
})

export const runFailingTestsTool = workspaceTool({
  name: 'run_failing_tests',
  title: 'Run the failed tests again',
  readOnly: false,
  description: 'Run the tests again that failed in the last run of run_tests.',
  input: {
    limit: Type.Optional(Type.Integer({ minimum: 1, maximum: 200, description: 'Number of tests. Default: 50.' })),
    timeout: timeout(300, 1800),
    language,
  },
  reply: Report,
  call: ({ timeout: seconds = 300, ...rest }) => ({
    op: 'failing_tests',
    args: { ...rest, timeout: seconds },
    timeoutMs: seconds * 1000 + graceMs,
  }),
  show: (report, { timeout: seconds = 300 }) => showReport(report, seconds),
})

export const lastTestFailuresTool = workspaceTool({
  name: 'last_test_failures',
  title: 'Show the last test failures',
  readOnly: true,
  description: 'Return the failures of the last run of the tests with their messages and where they occurred.',
  input: {
    limit: Type.Optional(Type.Integer({ minimum: 1, maximum: 500, description: 'Number of failures. Default: 50.' })),
  },
  reply: Type.Object({ findings: Type.Array(Finding), total: Type.Integer(), language: Type.String() }),
  call: (input) => ({ op: 'last_failures', args: input }),
  show: ({ findings, total }) => ({
    text:
      findings
        .map(({ test, file, line, message, detail }) =>
          [test ?? '(unnamed test)', `${file ?? '(unknown file)'}:${line ?? '?'}`, message ?? '', detail ?? '']
            .filter(Boolean)
            .join('\n'),
        )
        .join('\n\n') || `no failures (${total})`,
    structured: { findings, total },
  }),
})

const checker = (name: string, title: string, op: string, description: string) =>
  workspaceTool({
    ...{ name, title, readOnly: false, idempotent: true, description },
    input: { timeout: timeout(120, 600), language },
    reply: Report,
    call: ({ timeout: seconds = 120, language }) => ({
      op,
      args: { timeout: seconds, ...(language && { language }) },
      timeoutMs: seconds * 1000 + graceMs,
    }),
    show: (report, { timeout: seconds = 120 }) => {
      const { findings, exit, stdout, stderr, timed_out } = report
      if (findings.length === 0 && exit !== 0) return showReport(report, seconds)
      const count = `${findings.length} findings`
      const incomplete = timed_out ? [`(${name.replace('run_', '')} incomplete: timed out after ${seconds}s)`] : []
      const rest = findings.length === 0 ? [stdout.trim(), stderr.trim()].filter(Boolean) : [findingLines(findings)]
      return { text: [...rest, ...incomplete, count].join('\n'), structured: { exit_code: exit, timed_out, findings } }
    },
  })

export const runLintTool = checker(
  'run_lint',
  'Run the linter',
  'lint',
  'Run the linter of the project: golangci-lint, clippy, ruff, or the lint script or ESLint.',
)
export const runTypecheckTool = checker(
  'run_typecheck',
  'Check types',
  'typecheck',
  'Check the types of the project: go vet, cargo check, mypy, or the typecheck script or tsc.',
)

export const runScriptTool = workspaceTool({
  name: 'run_script',
  title: 'Run a script of package.json',
  readOnly: false,
  description: 'Run a script of package.json with the package manager of the project.',
  input: {
    name: Type.String({
      minLength: 1,
      maxLength: 214,
      pattern: '^[^-\\s][^\\s]*$',
      description: 'Name of the script.',
    }),
    timeout: timeout(300, 1800),
    language,
  },
  reply: Report,
  call: ({ timeout: seconds = 300, ...rest }) => ({
    op: 'script',
    args: { ...rest, timeout: seconds },
    timeoutMs: seconds * 1000 + graceMs,
  }),
  show: (report, { timeout: seconds = 300 }) => showReport(report, seconds),
})
