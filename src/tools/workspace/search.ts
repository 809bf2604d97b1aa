import Type from 'typebox'
import { workspaceTool } from './workspace-tool.ts'

const path = Type.Optional(
  Type.String({ maxLength: 4096, description: 'Directory or file to search. Default: the workspace.' }),
)
/** Characters of one search result. */
const shownMax = 100_000

export const globTool = workspaceTool({
  name: 'Glob',
  title: 'Find files by name',
  readOnly: true,
  description:
    'Find files by a pattern such as **/*.ts, newest first. A pattern without / matches names in all directories. Files that .gitignore lists are left out.',
  input: {
    pattern: Type.String({ minLength: 1, maxLength: 4096, description: 'Pattern with *, ?, [], {} and **.' }),
    path,
    limit: Type.Optional(
      Type.Integer({ minimum: 1, maximum: 10_000, description: 'Maximum number of files. Default: 100.' }),
    ),
  },
  reply: Type.Object({ files: Type.Array(Type.String()), total: Type.Integer(), partial: Type.Boolean() }),
  call: (input) => ({ op: 'glob', args: input }),
  show: ({ files, total, partial }) => {
    const more = total > files.length ? [`(${total - files.length} more files; raise limit or narrow the pattern)`] : []
    const cut = partial ? ['(the search took too long and is incomplete; narrow path)'] : []
    return { text: [...(files.length === 0 ? ['no files found'] : files), ...more, ...cut].join('\n') }
  },
})

export const grepTool = workspaceTool({
  name: 'Grep',
  title: 'Search file contents',
  readOnly: true,
  description:
    'Search the contents of files with a regular expression (Rust syntax, as in ripgrep). Files that .gitignore lists are left out.',
  input: {
    pattern: Type.String({
      minLength: 1,
      maxLength: 16_384,
      description: 'Regular expression. Escape literal braces and brackets.',
    }),
    path,
    glob: Type.Optional(Type.String({ maxLength: 1024, description: 'Only files that match, for example *.py.' })),
    type: Type.Optional(
      Type.String({
        pattern: '^[a-z0-9+-]{1,32}$',
        description: 'Only files of a type that ripgrep knows, for example rust.',
      }),
    ),
    case_insensitive: Type.Optional(Type.Boolean({ description: 'Ignore case. Default: false.' })),
    output_mode: Type.Optional(
      Type.String({ description: 'content (lines with numbers, the default), files_with_matches or count.' }),
    ),
    head_limit: Type.Optional(
      Type.Integer({ minimum: 0, maximum: 100_000, description: 'Maximum number of lines; 0: no limit.' }),
    ),
    offset: Type.Optional(Type.Integer({ minimum: 0, maximum: 1_000_000, description: 'Lines to skip.' })),
    before: Type.Optional(Type.Integer({ minimum: 0, maximum: 100, description: 'Lines before each match.' })),
    after: Type.Optional(Type.Integer({ minimum: 0, maximum: 100, description: 'Lines after each match.' })),
    multiline: Type.Optional(Type.Boolean({ description: 'Matches can span lines. Default: false.' })),
  },
  reply: Type.Object({ lines: Type.Array(Type.String()), partial: Type.Boolean() }),
  call: (input) => ({ op: 'grep', args: input }),
  show: ({ lines, partial }, { head_limit = 0 }) => {
    if (lines.length === 0)
      return { text: partial ? 'no matches before the time limit; narrow path or glob' : 'no matches found' }
    const text = lines.join('\n')
    const isCut = text.length > shownMax
    const cut = isCut ? `${text.slice(0, text.lastIndexOf('\n', shownMax))}\n` : `${text}\n`
    const isIncomplete = isCut || (partial && (head_limit === 0 || lines.length < head_limit))
    return { text: isIncomplete ? `${cut}(results truncated; narrow the search with path, glob or head_limit)` : text }
  },
})
