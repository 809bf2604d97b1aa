import { mkdirSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { startAgent, type TestAgent } from '../../support/agent-process.ts'

/**
 * A server that behaves as rust-analyzer does: before it has read the project it finds nothing, and its first answer after
 * that is that the content was modified. The file `fail` makes it exit instead of reading the project.
 */
const server = `#!/usr/bin/python3
import json, os, sys, threading

def send(message):
    data = json.dumps({"jsonrpc": "2.0", **message}).encode()
    sys.stdout.buffer.write(b"Content-Length: %d\\r\\n\\r\\n" % len(data) + data)
    sys.stdout.buffer.flush()

def status(quiescent):
    send({"method": "experimental/serverStatus", "params": {"health": "ok", "quiescent": quiescent}})

def load():
    if os.path.exists("fail"):
        os._exit(1)
    state["loaded"] = True
    status(True)

state = {"loaded": False, "asked": 0, "wanted": False}
while True:
    length = 0
    while (line := sys.stdin.buffer.readline()).strip():
        length = int(line.split(b":")[1])
    if not line:
        break
    message = json.loads(sys.stdin.buffer.read(length))
    method = message.get("method")
    if method == "initialize":
        state["wanted"] = message["params"]["capabilities"]["experimental"]["serverStatusNotification"]
        send({"id": message["id"], "result": {"capabilities": {}}})
    elif method == "initialized" and state["wanted"]:
        status(False)
        threading.Timer(0.5, load).start()
    elif method == "textDocument/definition":
        state["asked"] += state["loaded"]
        place = {"uri": message["params"]["textDocument"]["uri"],
                 "range": {"start": {"line": 0, "character": 3}, "end": {"line": 0, "character": 6}}}
        if state["loaded"] and state["asked"] == 1:
            send({"id": message["id"], "error": {"code": -32801, "message": "content modified"}})
        else:
            send({"id": message["id"], "result": [place] if state["loaded"] else []})
`

describe('a language server that reads the project when it has started', () => {
  const root = mkdtempSync(join(tmpdir(), 'glovebox-loading-'))
  let agent: TestAgent

  beforeAll(async () => {
    mkdirSync(join(root, 'bin'))
    writeFileSync(join(root, 'bin/rust-analyzer'), server, { mode: 0o755 })
    writeFileSync(join(root, 'lib.rs'), 'fn add() {}\n')
    agent = await startAgent(root, { PATH: `${join(root, 'bin')}:/usr/bin:/bin` })
  })
  afterAll(async () => {
    await agent.agent.close()
    rmSync(root, { recursive: true, force: true })
  })

  it('is asked when it has read it, and again if the content was modified meanwhile', async () => {
    expect(await agent.ok('definition', { file_path: 'lib.rs', line: 1, col: 4 })).toEqual({
      source: 'rust-analyzer',
      places: [{ file: 'lib.rs', line: 1, column: 4, text: 'fn add() {}' }],
    })
  }, 60_000)

  it('fails the call when it exits before', async () => {
    writeFileSync(join(root, 'fail'), '')
    const failing = await startAgent(root, { PATH: `${join(root, 'bin')}:/usr/bin:/bin` })
    try {
      expect(await failing.refused('definition', { file_path: 'lib.rs', line: 1, col: 4 })).toBe(
        'the language server of rust exited; it is restarted with the next call',
      )
    } finally {
      await failing.agent.close()
    }
  }, 60_000)
})

describe('checks of a Node.js project', () => {
  it('say which program is missing, and use the one of the project', async () => {
    const root = mkdtempSync(join(tmpdir(), 'glovebox-node-checks-'))
    writeFileSync(join(root, 'package.json'), '{"scripts": {"build": "true"}}')
    // Not /usr/bin, which can contain package managers.
    mkdirSync(join(root, 'bin'))
    symlinkSync('/usr/bin/python3', join(root, 'bin/python3'))
    const agent = await startAgent(root, { PATH: join(root, 'bin') })
    try {
      expect(await agent.refused('typecheck')).toBe(
        'tsc is not installed in this sandbox. Install it with: npm install --save-dev typescript',
      )
      expect(await agent.refused('lint')).toBe(
        'eslint is not installed in this sandbox. Install it with: npm install --save-dev eslint',
      )
      writeFileSync(join(root, 'pnpm-lock.yaml'), '')
      expect(await agent.refused('script', { name: 'build' })).toBe(
        'pnpm is not installed in this sandbox. Install it with: npm install -g pnpm',
      )
      mkdirSync(join(root, 'node_modules/.bin'), { recursive: true })
      writeFileSync(
        join(root, 'node_modules/.bin/tsc'),
        '#!/bin/sh\necho "a.ts(2,3): error TS1: wrong ($*)"; exit 2\n',
        {
          mode: 0o755,
        },
      )
      expect(await agent.ok('typecheck')).toMatchObject({
        exit: 2,
        findings: [{ file: 'a.ts', line: 2, column: 3, rule: 'TS1', message: 'wrong (--noEmit --pretty false)' }],
      })
    } finally {
      await agent.agent.close()
      rmSync(root, { recursive: true, force: true })
    }
  }, 60_000)
})
