/** Rewrites code so that V8 can evaluate it in its REPL mode: without types, module syntax and top-level `await`. */
const Module = require('node:module')
const path = require('node:path')
const { pathToFileURL } = require('node:url')
const vm = require('node:vm')

/** Parts of the REPL of Node, which `--expose-internals` makes available; loaded when it is needed. */
const parser = () => ({
  acorn: require('internal/deps/acorn/acorn/dist/acorn'),
  walk: require('internal/deps/acorn/acorn-walk/dist/walk'),
})

/**
 * Puts code with a top-level `await` into a function, with its declarations outside. V8 could do so as well, but the
 * inspector crashes when it collects a promise that it waits for.
 * @returns undefined if the code does not wait.
 */
function asFunction(code) {
  if (!/\bawait\b/.test(code)) return undefined
  try {
    return require('internal/repl/await').processTopLevelAwait(code) ?? undefined
  } catch {
    return undefined // V8 says what is wrong.
  }
}

/** Runs what warns that it is experimental. */
function withoutWarnings(work) {
  const usual = process.emitWarning
  process.emitWarning = () => undefined
  try {
    return work()
  } finally {
    process.emitWarning = usual
  }
}

/** Imports as a file in the working directory would. */
const importers = new Map()
function importFromHere(specifier, options) {
  const directory = process.cwd()
  let importer = importers.get(directory)
  if (!importer) {
    const from = vm.constants?.USE_MAIN_CONTEXT_DEFAULT_LOADER
    const filename = path.join(directory, 'call.js')
    importer = from
      ? vm.runInThisContext('(name, how) => import(name, how)', { filename, importModuleDynamically: from })
      : (name, how) => import(/^[.]{0,2}\//.test(name) ? pathToFileURL(path.resolve(directory, name)).href : name, how)
    importers.set(directory, importer)
  }
  return importer(specifier, options)
}

/** Replaces what is only possible in modules. Lines stay where they are. */
function withoutModuleSyntax(code) {
  if (!/\b(?:import|export)\b/.test(code)) return code
  const { acorn, walk } = parser()
  let tree
  try {
    tree = acorn.parse(code, {
      ecmaVersion: 'latest',
      sourceType: 'script',
      allowAwaitOutsideFunction: true,
      allowImportExportEverywhere: true,
      allowHashBang: true,
    })
  } catch {
    return code // V8 says what is wrong.
  }
  const edits = []
  const edit = (start, end, text) =>
    edits.push({
      start,
      end,
      text: text + '\n'.repeat(Math.max(code.slice(start, end).split('\n').length - text.split('\n').length, 0)),
    })
  walk.simple(tree, {
    ImportExpression: (node) => edit(node.start, node.start + 'import'.length, '__glovebox_import__'),
    MetaProperty: (node) => {
      if (node.meta.name !== 'import') return
      edit(
        node.start,
        node.end,
        '({ url: "file://" + __filename, dirname: __dirname, filename: __filename, resolve: require.resolve })',
      )
    },
    ImportDeclaration: (node) => edit(node.start, node.end, importOf(code, node)),
    ExportNamedDeclaration: (node) => edit(node.start, node.declaration?.start ?? node.end, ''),
    ExportDefaultDeclaration: (node) => edit(node.start, node.declaration.start, ''),
  })
  let result = code
  for (const { start, end, text } of edits.sort((one, other) => other.start - one.start))
    result = result.slice(0, start) + text + result.slice(end)
  return result
}

function importOf(code, { specifiers, source, attributes = [] }) {
  const options =
    attributes.length > 0 ? `, { with: { ${attributes.map((a) => code.slice(a.start, a.end)).join(', ')} } }` : ''
  const module = `await __glovebox_import__(${source.raw}${options})`
  const whole = specifiers.find(({ type }) => type === 'ImportNamespaceSpecifier')
  const parts = specifiers
    .filter((specifier) => specifier !== whole)
    .map(({ type, imported, local }) =>
      type === 'ImportDefaultSpecifier' ? `default: ${local.name}` : `${imported.raw ?? imported.name}: ${local.name}`,
    )
  if (whole)
    return `const ${whole.local.name} = ${module}${parts.length > 0 ? `, { ${parts} } = ${whole.local.name}` : ''};`
  return parts.length > 0 ? `const { ${parts.join(', ')} } = ${module};` : `${module};`
}

function withoutTypes(code) {
  const strip = Module.stripTypeScriptTypes
  if (!strip) throw new SyntaxError(`TypeScript needs Node.js 22.13; this is ${process.version}`)
  return withoutWarnings(() => {
    try {
      return strip(code)
    } catch (error) {
      if (error.code !== 'ERR_UNSUPPORTED_TYPESCRIPT_SYNTAX') throw error
      return strip(code, { mode: 'transform' })
    }
  })
}

/** Names that rewritten code uses. */
const globals = { __glovebox_import__: importFromHere }

/** @returns the code for V8, and whether its value is a promise for `{ value }`. */
function rewritten(code, isTyped) {
  const plain = withoutModuleSyntax(isTyped ? withoutTypes(code.replace(/^#!/, '//')) : code.replace(/^#!/, '//'))
  const waiting = asFunction(plain)
  return { expression: waiting ?? plain, isWaiting: waiting !== undefined }
}

module.exports = { globals, rewritten }
