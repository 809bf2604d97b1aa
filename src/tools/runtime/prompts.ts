import type { PromptListing } from '../prompt.ts'
import { diagnoses } from './prompt-table.ts'

/** A step of a diagnosis: the tool to call, and what to look for in its answer. */
export interface Step {
  tool: string
  /** Arguments; a value `{name}` is replaced by the argument of the prompt. */
  with?: Readonly<Record<string, string | number>>
  lookFor: string
}

/** A prompt that leads a model through an audit or a diagnosis. */
export interface Diagnosis {
  name: string
  title: string
  description: string
  arguments?: readonly PromptArgument[]
  /** What the model is to find out. */
  task: string
  steps: readonly Step[]
  /** What the answer must contain. */
  report: string
}

interface PromptArgument {
  name: string
  description: string
  required?: boolean
  /** Used if the argument is absent. */
  byDefault?: string
}

export const runtimePrompts: readonly Diagnosis[] = diagnoses

export const toListing = ({ name, title, description, arguments: known = [] }: Diagnosis): PromptListing => ({
  ...{ name, title, description },
  arguments: known.map(({ name: argument, description: meaning, required = false }) => ({
    ...{ name: argument, description: meaning, required },
  })),
})

/** Longest value of an argument. */
export const argumentMax = 500

/** Returns the text of a prompt. @param given checked: every required argument is there. */
export function toText(
  { task, steps, report, arguments: known = [] }: Diagnosis,
  given: Readonly<Record<string, string>>,
) {
  const values = new Map(
    known.map(({ name, byDefault = '' }) => [name, (given[name] ?? byDefault).slice(0, argumentMax)]),
  )
  const filled = (text: string) => text.replaceAll(/\{(\w+)\}/g, (whole, name: string) => values.get(name) ?? whole)
  const lines = steps.map((step, at) => `${at + 1}. Call ${callOf(step, filled)}. ${filled(step.lookFor)}`)
  return [
    'You look inside a running Glovebox server, which runs code for AI agents in isolated sandboxes. Use only the tools that are named here, in this order. Change nothing.',
    filled(task),
    ...lines,
    filled(report),
  ].join('\n\n')
}

/** Arguments without a value are left out. */
function callOf({ tool, with: given = {} }: Step, filled: (text: string) => string): string {
  const entries = Object.entries(given).map(([name, value]) => [
    name,
    typeof value === 'string' ? filled(value) : value,
  ])
  const present = entries.filter(([, value]) => value !== '').map(([name, value]) => [name, asNumber(value)])
  return present.length === 0 ? tool : `${tool} with ${JSON.stringify(Object.fromEntries(present))}`
}

/** Arguments of prompts are strings; those of tools can be numbers. */
const asNumber = (value: unknown): unknown =>
  typeof value === 'string' && /^\d{1,9}$/.test(value) ? Number(value) : value
