import Type, { type Static } from 'typebox'
import { findingsAfter, structuredFindings } from './files.ts'
import { Finding, workspaceTool } from './workspace-tool.ts'

const filePath = Type.String({ minLength: 1, maxLength: 4096, description: 'Path in the workspace.' })
const position = {
  file_path: filePath,
  line: Type.Integer({ minimum: 1, maximum: 100_000_000, description: 'Line, from 1.' }),
  col: Type.Integer({ minimum: 1, maximum: 1_000_000, description: 'Column, from 1.' }),
}

const Place = Type.Object({ file: Type.String(), line: Type.Integer(), column: Type.Integer(), text: Type.String() })
const Places = Type.Object({
  places: Type.Array(Place),
  source: Type.Union([Type.Null(), Type.String()]),
  advice: Type.Optional(Type.String()),
})

const showPlaces = ({ places, advice }: Static<typeof Places>) => {
  const lines = places.map(({ file, line, column, text }) => `${file}:${line}:${column}: ${text}`)
  if (lines.length === 0) lines.push('nothing found')
  if (advice !== undefined) lines.push(`(${advice})`)
  return { text: lines.join('\n'), structured: { places } }
}

export const findDefinitionTool = workspaceTool({
  name: 'find_definition',
  title: 'Find a definition',
  readOnly: true,
  description:
    'Find where the name at a position is defined, with a language server if one is installed in the sandbox, otherwise by name.',
  input: position,
  reply: Places,
  call: (input) => ({ op: 'definition', args: input }),
  show: showPlaces,
})

export const findReferencesTool = workspaceTool({
  name: 'find_references',
  title: 'Find references',
  readOnly: true,
  description:
    'Find where the name at a position is used, with a language server if one is installed in the sandbox, otherwise by name.',
  input: position,
  reply: Places,
  call: (input) => ({ op: 'references', args: input }),
  show: showPlaces,
})

export const renameSymbolTool = workspaceTool({
  name: 'rename_symbol',
  title: 'Rename a symbol',
  readOnly: false,
  idempotent: true,
  description:
    'Return a diff that renames the symbol at a position everywhere. Nothing is changed: apply the diff with Edit or with git apply. Needs a language server in the sandbox.',
  input: { ...position, new_name: Type.String({ minLength: 1, maxLength: 256, description: 'The new name.' }) },
  reply: Type.Object({ diff: Type.String(), files: Type.Integer() }),
  call: (input) => ({ op: 'rename', args: input }),
  show: ({ diff }) => ({ text: diff }),
})

const Symbols = Type.Array(
  Type.Object({
    name: Type.String(),
    kind: Type.String(),
    line: Type.Integer(),
    last: Type.Integer(),
    container: Type.Union([Type.Null(), Type.String()]),
  }),
)

export const symbolsTool = workspaceTool({
  name: 'symbols',
  title: 'List the symbols of a file',
  readOnly: true,
  description: 'List the functions, classes, methods and types of a file with their lines.',
  input: { file_path: filePath },
  reply: Type.Object({ symbols: Symbols, source: Type.String() }),
  call: (input) => ({ op: 'symbols', args: input }),
  show: ({ symbols }) => ({
    text:
      symbols
        .map(
          ({ name, kind, line, last, container }) =>
            `${line}-${last} ${kind} ${container === null ? '' : `${container}.`}${name}`,
        )
        .join('\n') || 'no symbols',
    structured: { symbols },
  }),
})

export const searchCodeTool = workspaceTool({
  name: 'search_code',
  title: 'Search symbols by words',
  readOnly: true,
  description:
    'Find functions, classes and methods whose names or comments contain the words of a query, best matches first.',
  input: {
    query: Type.String({ minLength: 1, maxLength: 1024, description: 'Words, for example "parse config file".' }),
    limit: Type.Optional(Type.Integer({ minimum: 1, maximum: 100, description: 'Number of results. Default: 20.' })),
  },
  reply: Type.Object({
    results: Type.Array(
      Type.Object({
        file: Type.String(),
        line: Type.Integer(),
        name: Type.String(),
        kind: Type.String(),
        text: Type.String(),
        score: Type.Number(),
      }),
    ),
    symbols: Type.Integer(),
  }),
  call: (input) => ({ op: 'search_code', args: input }),
  show: ({ results, symbols }) => ({
    text:
      results.map(({ file, line, text }) => `${file}:${line}: ${text}`).join('\n') ||
      `nothing found in ${symbols} symbols`,
    structured: { results },
  }),
})

export const testsCoveringTool = workspaceTool({
  name: 'tests_covering',
  title: 'Find the tests of a file',
  readOnly: true,
  description: 'Find test files that mention a file, or the function or class at one of its lines.',
  input: {
    file_path: filePath,
    line: Type.Optional(
      Type.Integer({ minimum: 1, maximum: 100_000_000, description: 'A line of the function or class.' }),
    ),
  },
  reply: Type.Object({ tests: Type.Array(Type.String()), word: Type.String(), total: Type.Integer() }),
  call: (input) => ({ op: 'tests_covering', args: input }),
  show: ({ tests, word }) => ({ text: tests.join('\n') || `no test file mentions ${word}` }),
})

const Written = Type.Object({
  bytes: Type.Integer(),
  path: Type.String(),
  findings: Type.Union([Type.Null(), Type.Array(Finding)]),
})

/** Defines a tool that changes a function by its name. */
const functionTool = (
  [name, title, how, done]: readonly [string, string, string, string],
  [nameField, nameText]: readonly [string, string],
  [textField, text]: readonly [string, string],
  description: string,
) =>
  workspaceTool({
    ...{ name, title, readOnly: false, description },
    input: {
      file_path: filePath,
      [nameField]: Type.String({ minLength: 1, maxLength: 512, description: nameText }),
      [textField]: Type.String({ minLength: 1, maxLength: 1_000_000, description: text }),
      ...(how === 'insert' && {
        receiver_type: Type.Optional(Type.String({ maxLength: 256, description: 'Class or type of the method.' })),
      }),
    },
    reply: Written,
    call: (input) => {
      const given = input as Record<string, string | undefined>
      const receiver = given.receiver_type?.replaceAll(/[*&()\s]/g, '')
      const named = receiver ? `${receiver}.${given[nameField]}` : given[nameField]
      return { op: 'edit_function', args: { file_path: given.file_path, how, name: named, text: given[textField] } }
    },
    show: ({ findings }, input) => {
      const given = input as Record<string, string | undefined>
      return {
        text: `${done} ${given[nameField]} in ${given.file_path}${findingsAfter(findings)}`,
        ...structuredFindings(findings),
      }
    },
  })

const functionName = ['function_name', 'Name, or Class.name, or (*Type).name.'] as const

export const editFunctionBodyTool = functionTool(
  ['edit_function_body', 'Replace the body of a function', 'body', 'replaced the body of'],
  functionName,
  ['new_body', 'The new body, without its braces.'],
  'Replace the body of a function or method: Python, Go, JavaScript, TypeScript, Rust, Java or C. The file must have been read before.',
)

export const insertAfterMethodTool = functionTool(
  ['insert_after_method', 'Insert a method', 'insert', 'inserted a method after'],
  ['method_name', 'The method after which the new one is inserted.'],
  ['new_method', 'The new method, indented as in the file.'],
  'Insert a function or method after an existing one. The file must have been read before.',
)

export const changeFunctionSignatureTool = functionTool(
  ['change_function_signature', 'Change the signature of a function', 'signature', 'changed the signature of'],
  functionName,
  ['new_signature', 'The whole new signature, without the opening brace or colon.'],
  'Replace the signature of a function or method and keep its body. Callers are not changed. The file must have been read before.',
)

const renderer = (name: string, title: string, program: string) =>
  workspaceTool({
    ...{ name, title, readOnly: false, idempotent: true },
    description: `Render a diagram into a file of the workspace (.svg, .png or .pdf). Needs ${program} in the sandbox.`,
    input: {
      source: Type.String({ minLength: 1, maxLength: 1_048_576, description: 'The text of the diagram.' }),
      output_path: filePath,
      timeout: Type.Optional(
        Type.Integer({ minimum: 1, maximum: 300, description: 'Time limit in seconds. Default: 60.' }),
      ),
    },
    reply: Type.Object({ bytes: Type.Integer(), path: Type.String() }),
    call: (input) => ({ op: 'render', args: { program, ...input } }),
    show: ({ bytes }, { output_path }) => ({ text: `wrote ${bytes} bytes to ${output_path}` }),
  })

export const renderMermaidTool = renderer('render_mermaid', 'Render a Mermaid diagram', 'mmdc')
export const renderDotTool = renderer('render_dot', 'Render a Graphviz diagram', 'dot')
