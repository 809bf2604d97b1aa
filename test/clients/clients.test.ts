import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, expect, it } from 'vitest'
import { until } from '../support/glovebox.ts'
import { newKey, type OwnKey } from '../support/keys.ts'
import { openStory } from '../support/story.ts'
import { agents, type Outcome, runSession } from './agents.ts'
import { cases, cellOf } from './cases.ts'
import { describeClient } from './describe-client.ts'
import { whileHeld } from './held-thread.ts'
import { libraries, type Report, runLibrary } from './libraries.ts'
import { pythonProgram, runProgram, sessionWithinMs } from './programs.ts'
import { newClient, proxies } from './proxies.ts'
import { ScriptedModel } from './scripted-model.ts'
import { documentedRow } from './table.ts'

// As it runs for people: other tests read the structured form of results.
const story = openStory([
  ...['--no-dev', '--no-structured-results', '--mcp-output', '30000'],
  ...['--limit-thread', '64MiB', '--storage-reserve', '0', '--thread-busy-wait-s', '30'],
])
let key: OwnKey
let model: ScriptedModel
beforeAll(async () => {
  key = await newKey(story.place)
  model = await ScriptedModel.open()
})
afterAll(() => model.close())

for (const agent of agents) {
  await describeClient(agent.title, agent.client, () => {
    const session = () => ({ model, mcpUrl: `${story.url}/mcp`, key: key.secret })
    let outcome: Outcome
    beforeAll(async () => {
      const turns = cases.map(({ call }) => [call])
      outcome = await whileHeld(story.url, key, () => runSession(agent, session(), turns))
    }, sessionWithinMs)

    it('offers the tools to its model, which receives what docs/clients.md says', () => {
      expect(outcome.results, outcome.printed).toHaveLength(cases.length)
      const cells = cases.map((each, index) => cellOf(each, outcome.results[index]!))
      expect(cells).toEqual(documentedRow(agent.title))
    })

    it(
      'waits for a busy thread with ?busy=wait, so that parallel calls succeed',
      async () => {
        const call = (code: string) => ({ tool: 'sandbox_execute', arguments: { code, thread_id: 'parallel' } })
        const turn = [call('import time; time.sleep(0.5); print("o" + "ne")'), call('print("t" + "wo")')]
        const { results, printed } = await runSession(agent, { ...session(), mcpUrl: `${story.url}/mcp?busy=wait` }, [
          turn,
        ])
        const texts = results.map(({ parts }) => parts.map((part) => (part.type === 'text' ? part.text : '')).join())
        expect(texts, printed).toEqual([expect.stringContaining('one\n'), expect.stringContaining('two\n')])
      },
      sessionWithinMs,
    )

    it(
      'offers no tool without a key',
      async () => {
        const { tools } = await runSession(agent, { ...session(), key: undefined }, [])
        expect(tools.filter((name) => name.includes('sandbox_execute'))).toEqual([])
      },
      sessionWithinMs,
    )
  })
}

for (const library of libraries) {
  await describeClient(library.title, library.client, () => {
    let report: Report
    beforeAll(async () => {
      const task = { url: `${story.url}/mcp`, key: key.secret, calls: cases.map(({ call }) => call) }
      report = await whileHeld(story.url, key, () => runLibrary(library, task, model))
    }, sessionWithinMs)

    it('lists the tools, calls one, and receives what docs/clients.md says', () => {
      expect(report.tools).toContainEqual(expect.stringContaining('sandbox_execute'))
      expect(cases.map((each, index) => cellOf(each, report.results[index]!))).toEqual(documentedRow(library.title))
    })

    it('receives output while the code runs', () => {
      expect(report.streamed).toBe('one\ntwo\n')
    })

    if (library.cancels)
      it('cancels the run of a call that is cancelled', async () => {
        await until(() => story.place.runs().at(-1)?.ending === '{"kind":"cancelled"}', 'the run is cancelled')
      })

    it(
      'is told to send a key',
      async () => {
        const task = { url: `${story.url}/mcp`, key: null, calls: [] }
        await expect(runLibrary(library, task, model)).rejects.toThrow(/no report: [\s\S]*(401|Unauthorized|key)/)
      },
      sessionWithinMs,
    )
  })
}

await describeClient('baponi', 'python-mcp-2', () => {
  it(
    'runs code inline, streaming and in the background, cancels, and transfers files over REST',
    async () => {
      const home = await mkdtemp(join(tmpdir(), 'glovebox-library-'))
      const input = { url: story.url, key: key.secret }
      const program = pythonProgram('python-mcp-2', 'baponi-client.py')
      const { out, err } = await runProgram(program, { home, directory: home, proxy: model.url, input })
      await rm(home, { recursive: true })
      const result = { success: true, stderr: '', exit_code: 0, error: null }
      expect(out === '' ? err : JSON.parse(out)).toEqual({
        inline: { ...result, stdout: '42\n' },
        events: ['output', 'result', 'status'],
        streamed: { ...result, stdout: 'out\n', stderr: 'err\n' },
        resumed: 'ut\n',
        limited: 124,
        waited: ['success', 'later\n'],
        cancelled: 'cancelled',
        files: ['up.txt'],
        downloaded: 'hello',
      })
    },
    sessionWithinMs,
  )
})

for (const proxy of proxies) {
  await describeClient(proxy.title, proxy.client, () => {
    let started: Awaited<ReturnType<typeof proxy.start>>
    const client = newClient()
    beforeAll(async () => {
      started = await proxy.start({ url: story.url, key: key.secret, directory: story.place.directory })
      await client.connect(started.transport)
    }, sessionWithinMs)
    afterAll(async () => {
      await client.close()
      await started.end()
    })
    const call = (code: string, options: object = {}) =>
      client.callTool({ name: 'sandbox_execute', arguments: { language: 'bash', code } }, undefined, options)

    it('carries lists and calls', async () => {
      expect((await client.listTools()).tools.map(({ name }) => name)).toContain('sandbox_execute')
      expect(JSON.stringify(await call('echo $((6 * 7))'))).toContain('42')
    })

    if (proxy.streams)
      it('carries output while the code runs, and the cancellation of a call', async () => {
        let streamed = ''
        const onprogress = ({ message = '' }) => {
          streamed += message
        }
        await call('echo one; sleep 0.2; echo two; sleep 0.2', { onprogress })
        expect(streamed).toBe('one\ntwo\n')
        const stop = new AbortController()
        const endless = call('echo started; sleep 60', { onprogress: () => stop.abort(), signal: stop.signal })
        await expect(endless).rejects.toThrow()
        await until(() => story.place.runs().at(-1)?.ending === '{"kind":"cancelled"}', 'the run is cancelled')
      })
  })
}
