#!/usr/bin/env node
// The command of the npm package, on every system. It has to be readable for any Node.js: an older one starts the pinned
// one, which npm installs on Linux.
'use strict'
const { existsSync } = require('node:fs')
const { join } = require('node:path')
const { pathToFileURL } = require('node:url')

const oldest = 24
const main = ['main.js', 'main.ts'].map((name) => join(__dirname, '../src', name)).find(existsSync)

if (Number(process.versions.node.split('.')[0]) >= oldest) {
  import(pathToFileURL(main).href)
} else {
  const node = pinnedNode()
  if (node === undefined) {
    console.error(`glovebox: Node.js ${process.versions.node} is too old; install Node.js ${oldest} or later`)
    process.exit(78)
  }
  const child = require('node:child_process').spawn(node, [main].concat(process.argv.slice(2)), { stdio: 'inherit' })
  for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP']) process.on(signal, () => child.kill(signal))
  child.on('exit', (code, signal) =>
    process.exit(code === null ? 128 + require('node:os').constants.signals[signal] : code),
  )
}

function pinnedNode() {
  try {
    return join(require.resolve(`node-linux-${process.arch}/package.json`), '../bin/node')
  } catch {
    return undefined
  }
}
