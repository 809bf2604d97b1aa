/** Libraries that connect without a model: what a call returns to the program is what its agent would hand to a model. */
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { ClientName } from './packages.ts'
import { nodeProgram, pythonProgram, runProgram } from './programs.ts'
import type { Received, ScriptedModel, ToolCall } from './scripted-model.ts'

export interface Library {
  title: string
  client: ClientName
  command: () => readonly [string, ...string[]]
  /** Whether a cancelled call ends its run; otherwise the run continues until its timeout. */
  cancels: boolean
}

export const libraries: readonly Library[] = [
  { title: 'Mastra', client: 'mastra', command: () => nodeProgram('mastra', 'mastra-client.mjs'), cancels: true },
  { title: 'mcp-use', client: 'mcp-use', command: () => nodeProgram('mcp-use', 'mcp-use-client.mjs'), cancels: true },
  ...(
    [
      ['Python SDK', 'python-mcp-2', 'official-client.py', true],
      ['FastMCP', 'python-mcp-2', 'fastmcp-client.py', true],
      ['LangChain for Python', 'python-mcp-1', 'langchain-adapters.py', false],
      ['requests', 'python-mcp-2', 'plain-requests.py', false],
    ] as const
  ).map(([title, client, file, cancels]) => ({ title, client, command: () => pythonProgram(client, file), cancels })),
]

export interface Report {
  tools: readonly string[]
  results: readonly Received[]
  /** The output that arrived while its run had not ended. */
  streamed: string
}

/** Runs the program of a library. @throws Error with what it printed when it ends without a report. */
export async function runLibrary(
  { command }: Library,
  task: { url: string; key: string | null; calls: readonly ToolCall[] },
  model: ScriptedModel,
): Promise<Report> {
  const home = await mkdtemp(join(tmpdir(), 'glovebox-library-'))
  try {
    const { out, err } = await runProgram(command(), { home, directory: home, proxy: model.url, input: task })
    const line = out.trim().split('\n').at(-1) ?? ''
    if (!line.startsWith('{')) throw new Error(`no report: ${out} ${err}`)
    return JSON.parse(line) as Report
  } finally {
    await rm(home, { recursive: true, force: true })
  }
}
