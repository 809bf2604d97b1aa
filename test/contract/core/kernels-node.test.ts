import { tmpdir } from 'node:os'
import { dirname } from 'node:path'
import { env, execPath } from 'node:process'
import { afterAll, describe, expect, it } from 'vitest'
import { openKernels } from '../../../src/core/sandboxes/kernels/kernels.ts'
import { callIn, kernelsInSources } from '../../support/kernel-calls.ts'
import { PlainProcesses } from '../../support/plain-processes.ts'

const processes = new PlainProcesses({ cwd: tmpdir(), env: { PATH: `${dirname(execPath)}:${env.PATH}` } })
const kernels = openKernels(processes, { dir: kernelsInSources, graceMs: 3_000 })
const call = callIn(kernels, 'sbx')
const node = (code: string, options = {}) => call('node', code, options)

afterAll(() => processes[Symbol.asyncDispose]())

describe('a Node context', () => {
  it('keeps variables, which can be declared again, and the working directory', async () => {
    await node('const a = 1; let b = 2; class C {}; function f() { return a + b }; process.chdir("/usr")')
    expect((await node('const a = 40; let b = 2; f() + process.cwd()')).result).toBe("'42/usr'")
  })

  it('shows the value of the last expression as the console would', async () => {
    expect((await node('({ x: [1, { y: 2n }], s: "t" })')).result).toBe("{ x: [ 1, { y: 2n } ], s: 't' }")
    expect((await node('-0')).result).toBe('-0')
    expect((await node('null')).result).toBe('null')
    expect((await node('let unused = 1')).displays).toEqual([])
  })

  it('awaits at the top level, and the promise that the code ends with', async () => {
    expect((await node('const v = await Promise.resolve(5); v')).result).toBe('5')
    expect((await node('v + 1')).result).toBe('6')
    const main = await node('async function main() { await null; console.log("in main"); return 7 }\nmain()')
    expect([main.stdout, main.result]).toEqual(['in main\n', '7'])
  })

  it('imports statically, dynamically and with require', async () => {
    const code = `import fs, { readFileSync as read } from "node:fs"
import * as path from "node:path"
const { EOL } = await import("node:os")
;[typeof fs.statSync, typeof read, path.sep, EOL, require("node:os").EOL, "import('x')"]`
    expect((await node(code)).result).toBe(`[ 'function', 'function', '/', '\\n', '\\n', "import('x')" ]`)
  })

  it('runs TypeScript without its types in the same state', async () => {
    await call('typescript', 'interface P { n: number }\nconst p: P = { n: 4 }\nenum E { A = 3 }')
    expect((await node('p.n + E.A')).result).toBe('7')
  })

  it('reports errors with the lines of the code and no frame of the kernel', async () => {
    const { ended } = await node('function g() {\n  throw new TypeError("bad")\n}\ng()')
    expect(ended.ending).toEqual({
      kind: 'raised',
      name: 'TypeError',
      message: 'bad',
      traceback: `TypeError: bad\n    at g (call-${ended.count}.js:2:9)\n    at call-${ended.count}.js:4:1\n`,
    })
    const unparsed = await node('let ok = 1\nlet = (')
    expect(unparsed.ended.ending).toMatchObject({ name: 'SyntaxError' })
    const later = await node('setTimeout(() => { throw new Error("later") }); await new Promise(() => {})')
    expect(later.ended.ending).toMatchObject({ kind: 'raised', message: 'later' })
    expect((await node('await Promise.reject(new RangeError("r"))')).ended.ending).toMatchObject({ name: 'RangeError' })
  })

  it('passes on the output of subprocesses, and the standard input of a call', async () => {
    const code =
      'console.log("a"); console.error("e"); require("child_process").execSync("cat; echo b", { stdio: "inherit" }); 0'
    const { stdout, stderr } = await node(code, { stdin: Buffer.from('in\n') })
    expect([stdout, stderr]).toEqual(['a\nin\nb\n', 'e\n'])
    const read = 'let text = ""; for await (const part of process.stdin) text += part; text'
    expect((await node(read, { stdin: Buffer.from('two') })).result).toBe("'two'")
    expect((await node(read)).result).toBe("''")
  })

  it('ends the call and keeps the state when the code exits', async () => {
    await node('const kept = 7')
    expect((await node('process.exit(4)')).ended).toMatchObject({ ending: { kind: 'exited', code: 4 }, state: 'kept' })
    expect((await node('kept')).result).toBe('7')
  })

  it.each([
    ['a loop', 'while (true) {}'],
    ['a promise', 'await new Promise(() => setTimeout(() => {}, 60_000))'],
    ['a loop after a wait', 'await new Promise((done) => setTimeout(done, 20)); while (true) {}'],
    ['a subprocess', 'require("child_process").execSync("sleep 60")'],
  ])('interrupts %s at its limit and keeps the state', async (_what, code) => {
    await node('const kept = 8')
    const { ended } = await node(code, { timeoutMs: 300 })
    expect(ended).toMatchObject({ ending: { kind: 'timed_out', limitMs: 300 }, state: 'kept' })
    expect((await node('kept')).result).toBe('8')
  })

  it('survives many calls after an interrupted promise', async () => {
    await node('await new Promise(() => {})', { timeoutMs: 50 })
    for (let i = 0; i < 200; i += 1)
      await node(`[${i}].concat(new Array(1000).fill({ ${'a'}: i }))`.replace('i }', '1 }'))
    expect((await node('kept')).result).toBe('8')
  })

  it('sets variables of the environment during one call only', async () => {
    expect((await node('process.env.ONLY', { env: { ONLY: '1' } })).result).toBe("'1'")
    expect((await node('process.env.ONLY')).displays).toEqual([])
  })

  it('shows what code displays', async () => {
    const code =
      'display({ "text/html": "<b>", "image/png": new Uint8Array([1, 2]) }, { raw: true }); display({ [Symbol.for("Jupyter.display")]: () => ({ "text/html": "<i>" }) })'
    const { displays } = await node(code)
    expect(displays[0]?.data).toEqual({ 'text/html': '<b>', 'image/png': Buffer.of(1, 2) })
    expect(displays[1]?.data['text/html']).toBe('<i>')
  })

  it('says that the code has ended its process', async () => {
    expect((await node('process.kill(process.pid, "SIGKILL"); await new Promise(() => {})')).ended).toMatchObject({
      ending: { kind: 'kernel_ended', ending: { kind: 'signaled', signal: 'KILL' } },
      state: 'lost',
    })
    expect((await node('typeof kept')).ended.lostBefore).toBe('the interpreter was ended by signal KILL')
  })
})
