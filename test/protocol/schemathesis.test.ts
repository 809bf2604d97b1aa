import { execFile } from 'node:child_process'
import { mkdtemp, readFile, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { promisify } from 'node:util'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { operator } from '../../src/core/admin/admin.ts'
import { createKey } from '../../src/core/admin/keys.ts'
import { createOrg } from '../../src/core/admin/orgs.ts'
import { type Front, openFront, threadsProfile } from '../support/front.ts'
import { install, installWithinMs, isAvailable, type Packages } from '../support/installed-packages.ts'

const execute = promisify(execFile)
const packages: Packages = { from: 'PyPI', specs: ['schemathesis==4.32.5'] }
const isReachable = await isAvailable(packages)

/** Findings that are as intended, by the type of the finding and the operation. */
const explained: readonly { type: string; operations: RegExp; why: string }[] = [
  {
    type: 'IgnoredAuth',
    operations: /./,
    why: 'It replaces one of two credentials. x-api-key takes precedence: Authorization may belong to a proxy.',
  },
  {
    type: 'ServerError',
    operations: /^POST \/v1\/sandbox\/execute$/,
    why: 'The runner of this test accepts no run, so that no generated program is executed: 503 with Retry-After.',
  },
  {
    type: 'AcceptedNegativeData',
    operations: /^(?:POST|PUT|PATCH) \/v1\//,
    why: 'null stands for an absent optional field, as many clients send it.',
  },
  {
    type: 'RejectedPositiveData',
    operations: /^GET \/(?:v1\/(?:executions|threads|volumes|mcp\/tools|mcp\/usage)|api\/mcp\/tools)$/,
    why: 'A cursor is accepted only as a list returned it; names, days and groups are described in words.',
  },
  {
    type: 'RejectedPositiveData',
    operations: /^GET \/v1\/executions\/\{id\}\/output$/,
    why: '`after` and `encoding` are for lines and require Accept: application/x-ndjson.',
  },
  {
    type: 'RejectedPositiveData',
    operations: /^POST \/v1\/(?:files\/\w+|threads\/\{id\}\/fork)$/,
    why: 'Names of threads, paths and cursors have rules that their descriptions state, not their schemas.',
  },
  {
    type: 'RejectedPositiveData',
    operations: /^\w+ \/v1\/(?:metrics\/)?sandboxes/,
    why: 'Names, namespaces, states, users and sizes have rules that their descriptions state, not their schemas.',
  },
  {
    type: 'RejectedPositiveData',
    operations: /^POST \/v1\/sandbox\/execute$/,
    why: 'Code is not empty, webhook_url is a public address and requires Prefer, and names have their rules.',
  },
]

interface Finding {
  type: string
  title: string
  operations: string[]
}

describe.skipIf(!isReachable)('the server', () => {
  let front: Front
  let directory: string
  let key: string

  beforeAll(async () => {
    await install(packages)
    directory = await mkdtemp(join(tmpdir(), 'glovebox-schemathesis-'))
    front = await openFront(threadsProfile, { dev: false })
    front.runner.maxRuns = 0
    const { id } = await createOrg(front.core.adminContext, operator, 'generated')
    key = (await createKey(front.core.adminContext, operator, id, {}, [])).secret
  }, installWithinMs)
  afterAll(async () => {
    await front.close()
    await rm(directory, { recursive: true, force: true })
  })

  it('answers generated requests as its OpenAPI document says', async () => {
    const report = join(directory, 'report.json')
    const python = join(await install(packages), 'bin/python')
    const start = 'import sys; from schemathesis.cli import schemathesis; sys.exit(schemathesis())'
    const bounds = ['--phases', 'examples,coverage,fuzzing', '--max-examples', '5', '--generation-deterministic']
    const output = ['--no-color', '--report', 'json', '--report-json-path', report]
    // Administration needs another credential, and what answers with JSON-RPC has the errors of JSON-RPC.
    // The sandboxes of this test are processes and files of this machine, which generated requests must not reach.
    const ofSandboxes = 'v1/sandboxes/[^/]+/(?:files|code|contexts)'
    const excluded = `^/(?:admin|console/login|metrics|mcp|v1/mcp$|sse$|message$|runtime/|~bxmcp/|api/v1/|${ofSandboxes})`
    const operations = ['--exclude-path-regex', excluded, '--header', `x-api-key: ${key}`]
    const words = ['run', `${front.url}/openapi.json`, ...operations, ...bounds, ...output, '--continue-on-failure']
    const { stdout } = await execute(python, ['-c', start, ...words], {
      cwd: directory,
      maxBuffer: 64 * 1024 * 1024,
    }).catch((error: { stdout: string }) => error)
    const {
      failures,
      errors,
      operations: seen,
    } = JSON.parse(await readFile(report, 'utf8')) as {
      failures: Finding[]
      errors: unknown[]
      operations: { tested: number }
    }
    const unexplained = failures.flatMap(({ type, title, operations: found }) =>
      found
        .filter((name) => !explained.some((known) => known.type === type && known.operations.test(name)))
        .map((name) => `${name}: ${type}, ${title}`),
    )
    expect(unexplained, stdout).toEqual([])
    expect(errors).toEqual([])
    expect(seen.tested).toBeGreaterThan(15)
    expect(front.lines.filter((line) => line.includes('"level":"error"'))).toEqual([])
  }, 600_000)
})
