import { spawn } from 'node:child_process'
import type { Duplex } from 'node:stream'
import { type AgentLink, WorkspaceAgent } from '../../src/core/workspaces/agent.ts'
import { agentCommand } from '../../src/core/workspaces/agent-program.ts'

/** Starts the agent of a workspace as a child process, with a socket as its descriptor 3. */
export function agentProcess(directory: string, env: Readonly<Record<string, string>> = {}): AgentLink {
  const [program, ...args] = agentCommand(directory) as [string, ...string[]]
  const child = spawn(program, args, {
    stdio: ['ignore', 'ignore', 'inherit', 'pipe'],
    env: { PATH: '/usr/local/bin:/usr/bin:/bin', HOME: directory, LC_ALL: 'C.UTF-8', ...env },
  })
  const channel = child.stdio[3] as Duplex
  const exited = new Promise<void>((resolve) => child.once('close', () => resolve()))
  // A write after the end of the process fails; the end itself is reported.
  channel.on('error', () => {})
  return {
    received: channel,
    write: (bytes) => new Promise((resolve) => channel.write(bytes, () => resolve())),
    close: async () => {
      channel.destroy()
      await exited
    },
  }
}

/** An agent that answers, for calls in tests. */
export interface TestAgent {
  agent: WorkspaceAgent
  /** Returns the value of a successful call. @throws Error with the text of a refusal. */
  ok<Value>(op: string, args?: object, reader?: string): Promise<Value>
  /** Returns the text of a refusal. @throws Error if the call succeeds. */
  refused(op: string, args?: object, reader?: string): Promise<string>
}

/** Wraps an agent for calls in tests. */
export function testAgent(agent: WorkspaceAgent): TestAgent {
  const call = (op: string, args: object, reader: string) =>
    agent.call(reader, { op, args: { ...args }, timeoutMs: 60_000 }, new AbortController().signal)
  return {
    agent,
    ok: async <Value>(op: string, args: object = {}, reader = 'a') => {
      const reply = await call(op, args, reader)
      if (reply.kind === 'refused') throw new Error(reply.text)
      return reply.value as Value
    },
    refused: async (op, args = {}, reader = 'a') => {
      const reply = await call(op, args, reader)
      if (reply.kind === 'ok') throw new Error(`the call succeeded: ${JSON.stringify(reply.value).slice(0, 300)}`)
      return reply.text
    },
  }
}

export const startAgent = async (directory: string, env?: Readonly<Record<string, string>>): Promise<TestAgent> =>
  testAgent(await WorkspaceAgent.start(agentProcess(directory, env)))
