import type { InputRequests, InputResponses } from '../../src/tools/request-context.ts'
import type { Tool } from '../../src/tools/tool.ts'
import { fixtureTool, form, roots, sampling, text } from './fixture-tool.ts'

const name = { name: { type: 'string' } }
const askName = { user_name: form('What is your name?', name) }

/** Returns the value at the end of a path in an answer. */
const from = (answers: InputResponses, ...path: readonly string[]): unknown =>
  path.reduce<unknown>((value, key) => (value as Record<string, unknown> | undefined)?.[key], answers)

const defaults = {
  name: { type: 'string', description: 'User name', default: 'John Doe' },
  age: { type: 'integer', description: 'User age', default: 30 },
  score: { type: 'number', description: 'User score', default: 95.5 },
  status: {
    type: 'string',
    description: 'User status',
    enum: ['active', 'inactive', 'pending'],
    default: 'active',
  },
  verified: { type: 'boolean', description: 'Verification status', default: true },
}

const options = ['option1', 'option2', 'option3']
const titled = (word: string) =>
  ['First', 'Second', 'Third'].map((title, index) => ({ const: `value${index + 1}`, title: `${title} ${word}` }))

const enums = {
  untitledSingle: { type: 'string', description: 'Select one option', enum: options },
  titledSingle: { type: 'string', description: 'Select one option with titles', oneOf: titled('Option') },
  legacyEnum: {
    type: 'string',
    description: 'Select one option (legacy)',
    enum: ['opt1', 'opt2', 'opt3'],
    enumNames: ['Option One', 'Option Two', 'Option Three'],
  },
  untitledMulti: {
    type: 'array',
    description: 'Select multiple options',
    minItems: 1,
    maxItems: 3,
    items: { type: 'string', enum: options },
  },
  titledMulti: {
    type: 'array',
    description: 'Select multiple options with titles',
    minItems: 1,
    maxItems: 3,
    items: { anyOf: titled('Choice') },
  },
}

const stringArgument = (field: string) => ({
  inputSchema: { type: 'object', properties: { [field]: { type: 'string' } }, required: [field] },
})

/** A tool that asks the client once and returns the answer. */
const asks = (toolName: string, requests: InputRequests, answered: (answers: InputResponses) => string): Tool =>
  fixtureTool(toolName, 'Asks', async (_given, { ask }) => [text(answered(await ask(requests)))])

const inWords = ({ form: answer }: InputResponses): string =>
  `action=${String(answer?.action)}, content=${JSON.stringify(answer?.content ?? {})}`

/** Tools that request input from the client and its user. */
export const inputTools: readonly Tool[] = [
  fixtureTool(
    'test_sampling',
    'Asks a model',
    async (given, { ask }) => {
      const answers = await ask({ sample: sampling(String(given.prompt), 100) })
      return [text(`LLM response: ${String(from(answers, 'sample', 'content', 'text'))}`)]
    },
    stringArgument('prompt'),
  ),
  fixtureTool(
    'test_elicitation',
    'Asks a person',
    async (given, { ask }) => {
      const answers = await ask({ form: form(String(given.message), { response: { type: 'string' } }) })
      return [text(`User response: ${inWords(answers)}`)]
    },
    stringArgument('message'),
  ),
  asks(
    'test_elicitation_sep1034_defaults',
    { form: form('Please review and update the form fields with defaults', defaults, []) },
    (answers) => `Elicitation completed: ${inWords(answers)}`,
  ),
  asks(
    'test_elicitation_sep1330_enums',
    { form: form('Please select options from the enum fields', enums, []) },
    (answers) => `Elicitation completed: ${inWords(answers)}`,
  ),
  asks(
    'test_input_required_result_elicitation',
    askName,
    (answers) => `Hello, ${String(from(answers, 'user_name', 'content', 'name'))}!`,
  ),
  asks(
    'test_input_required_result_sampling',
    { capital_question: sampling('What is the capital of France?', 100) },
    (answers) => String(from(answers, 'capital_question', 'content', 'text')),
  ),
  asks('test_input_required_result_list_roots', { client_roots: roots }, (answers) =>
    JSON.stringify(from(answers, 'client_roots', 'roots')),
  ),
  asks(
    'test_input_required_result_request_state',
    { confirm: form('Please confirm', { ok: { type: 'boolean' } }) },
    () => 'state-ok',
  ),
  asks(
    'test_input_required_result_tampered_state',
    { confirm: form('Please confirm', { ok: { type: 'boolean' } }) },
    () => 'state-ok',
  ),
  asks(
    'test_input_required_result_multiple_inputs',
    { ...askName, greeting: sampling('Generate a greeting', 50), client_roots: roots },
    (answers) => Object.keys(answers).join(', '),
  ),
  fixtureTool('test_input_required_result_multi_round', 'Asks twice', async (_given, { ask }) => {
    const first = await ask({ step1: form('Step 1: What is your name?', name) })
    const second = await ask({ step2: form('Step 2: What is your favorite color?', { color: { type: 'string' } }) })
    return [text(`${String(from(first, 'step1', 'content', 'name'))}: ${JSON.stringify(second)}`)]
  }),
  fixtureTool('test_input_required_result_capabilities', 'Asks for what is there', async (_given, { ask, client }) => {
    const answers = await ask({
      ...(client.has('elicitation') && askName),
      ...(client.has('sampling') && { greeting: sampling('Generate a greeting', 50) }),
    })
    return [text(Object.keys(answers).join(', '))]
  }),
]
