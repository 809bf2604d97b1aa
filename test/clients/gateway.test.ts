/** Clients that reach an upstream through the gateway. The upstream is the server itself, so that calls have every form. */
import { writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { afterAll, beforeAll, expect, it } from 'vitest'
import { program, until } from '../support/glovebox.ts'
import { newKey, type OwnKey, runCommand } from '../support/keys.ts'
import { openStory } from '../support/story.ts'
import { type Agent, agents, runSession } from './agents.ts'
import { cases, cellOf, heldThread } from './cases.ts'
import { describeClient } from './describe-client.ts'
import { libraries, type Report, runLibrary } from './libraries.ts'
import { runProgram, sessionWithinMs } from './programs.ts'
import { ScriptedModel } from './scripted-model.ts'
import { documentedRow } from './table.ts'

const story = openStory([
  ...['--no-dev', '--no-structured-results', '--mcp-output', '30000', '--outbound-allow', '127.0.0.1'],
  ...['--limit-thread', '64MiB', '--storage-reserve', '0'],
])
const allow = ['--outbound-allow', '127.0.0.1']
const upstream = 'acme/code'
let key: OwnKey
let model: ScriptedModel
beforeAll(async () => {
  const { place } = story
  key = await newKey(place)
  const bearer = join(place.directory, 'bearer')
  await writeFile(bearer, (await newKey(place)).secret, { mode: 0o600 })
  const added = await runCommand(place, [
    'upstreams',
    'add',
    upstream,
    `${story.url}/mcp`,
    '--bearer-file',
    bearer,
    ...allow,
  ])
  expect(added).toMatchObject({ code: 0, stderr: expect.stringContaining(`Registered ${upstream} with`) })
  model = await ScriptedModel.open()
})
afterAll(() => model.close())

/** Nothing holds the thread here. */
const asked = cases
  .map((each, index) => ({ ...each, index }))
  .filter(({ call }) => call.arguments.thread_id !== heldThread)

for (const library of libraries.filter(({ client }) => client.startsWith('python-'))) {
  await describeClient(`${library.title} through the relay`, library.client, () => {
    const url = () => `${story.url}/${upstream}/sse`
    let report: Report
    beforeAll(async () => {
      report = await runLibrary(library, { url: url(), key: key.secret, calls: asked.map(({ call }) => call) }, model)
    }, sessionWithinMs)

    it('lists, calls, and receives images and errors as from the server itself', () => {
      expect(report.tools).toContainEqual(expect.stringContaining('sandbox_execute'))
      const row = documentedRow(library.title)
      const cells = asked.map((each, index) => cellOf(each, report.results[index]!))
      expect(cells).toEqual(asked.map(({ index }) => row[index]))
    })

    it('receives progress while a call lasts', () => {
      expect(report.streamed).toBe('one\ntwo\n')
    })

    if (library.cancels)
      it('cancels a call at the upstream', async () => {
        await until(() => story.place.runs().at(-1)?.ending === '{"kind":"cancelled"}', 'the run is cancelled')
      })

    it(
      'connects only with a key',
      async () => {
        const task = { url: url(), key: null, calls: [] }
        await expect(runLibrary(library, task, model)).rejects.toThrow(
          /no report: [\s\S]*(401|[Uu]nauthorized|error response|key)/,
        )
      },
      sessionWithinMs,
    )
  })
}

/** The agents whose files `glovebox config` writes, with the name that it has for each; others in ./configured.test.ts. */
const configured: readonly (readonly [Agent['title'], string])[] = [
  ['Claude Code', 'claude-code'],
  ['Codex', 'codex'],
  ['Gemini CLI', 'gemini'],
]

for (const [title, name] of configured) {
  const agent = agents.find((each) => each.title === title)!
  await describeClient(`${title} with a file of glovebox config --write`, agent.client, () => {
    it(
      'offers the tools of the upstream to its model',
      async () => {
        let printed = ''
        const configure = async (home: string, directory: string) => {
          const keyFile = join(home, 'key')
          await writeFile(keyFile, key.secret, { mode: 0o600 })
          const words = ['--upstream', upstream, '--write', '--url', story.url, '--key-file', keyFile]
          const { out, err } = await runProgram([program, 'config', name, ...words], { home, directory, proxy: '' })
          printed = out + err
        }
        const outcome = await runSession(agent, { model, mcpUrl: undefined, key: undefined, configure }, [])
        expect(printed).toMatch(/^Changed .+\. Restart the client to apply it\.$/m)
        expect(printed).not.toContain(key.secret)
        expect(outcome.tools, outcome.printed).toContainEqual(expect.stringMatching(/code.*sandbox_execute/))
      },
      sessionWithinMs,
    )
  })
}
