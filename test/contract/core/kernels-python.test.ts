import { tmpdir } from 'node:os'
import { afterAll, describe, expect, it } from 'vitest'
import { openKernels } from '../../../src/core/sandboxes/kernels/kernels.ts'
import { callIn, kernelsInSources } from '../../support/kernel-calls.ts'
import { PlainProcesses } from '../../support/plain-processes.ts'

const processes = new PlainProcesses({ cwd: tmpdir(), env: { PATH: '/usr/bin:/bin' } })
const kernels = openKernels(processes, { dir: kernelsInSources, graceMs: 1_000 })
const call = callIn(kernels, 'sbx')
const python = (code: string, options = {}) => call('python', code, options)

afterAll(() => processes[Symbol.asyncDispose]())

describe('a Python context', () => {
  it('keeps variables, imports, functions and the working directory between calls', async () => {
    await python('import os, math\nx = 41\ndef f(y):\n    return math.floor(y) + x\nos.chdir("/usr")')
    expect((await python('f(1.5), os.getcwd()')).result).toBe("(42, '/usr')")
  })

  it('shows the value of the last expression unless it is None or ends with a semicolon', async () => {
    expect((await python('1 + 1')).result).toBe('2')
    expect((await python('None')).displays).toEqual([])
    expect((await python('1 + 1;')).displays).toEqual([])
    expect((await python('_ + 1')).result).toBe('3')
  })

  it('shows rich representations, also of several values of one call', async () => {
    const code = `class Rich:
    def _repr_html_(self): return "<b>r</b>"
    def _repr_png_(self): return b"\\x89PNG"
    def _repr_json_(self): return {"a": 1}
display(Rich()); Rich()`
    const { displays } = await python(code)
    expect(displays.map(({ isResult }) => isResult)).toEqual([false, true])
    expect(displays[0]?.data).toMatchObject({ 'text/html': '<b>r</b>', 'application/json': '{"a": 1}' })
    expect(displays[0]?.data['image/png']).toEqual(Buffer.from('\x89PNG', 'latin1'))
  })

  it('passes on the output of subprocesses and libraries in order and as a whole', async () => {
    const { stdout, stderr, ended } = await python(
      'import os, sys\nprint("a"); os.system("echo b; echo e >&2"); os.write(1, b"c\\n"); print("d", end="")',
    )
    expect([stdout, stderr, ended.ending]).toEqual(['a\nb\nc\nd', 'e\n', { kind: 'completed' }])
  })

  it('reports an exception with the lines of the code and no frame of the kernel', async () => {
    const { ended } = await python('def g():\n    raise ValueError("bad")\n\ng()')
    const { count } = ended
    expect(ended.ending).toEqual({
      kind: 'raised',
      name: 'ValueError',
      message: 'bad',
      traceback: `Traceback (most recent call last):\n  File "<call ${count}>", line 4, in <module>\n    g()\n  File "<call ${count}>", line 2, in g\n    raise ValueError("bad")\nValueError: bad\n`,
    })
    expect((await python('f(')).ended.ending).toMatchObject({ kind: 'raised', name: 'SyntaxError' })
  })

  it('gives input the standard input of the call, and its end without one', async () => {
    const stdin = Buffer.from('one\ntwo\n')
    expect((await python('print(input("? ")); rest = __import__("sys").stdin.read(); rest', { stdin })).stdout).toBe(
      '? one\n',
    )
    expect((await python('rest')).result).toBe("'two\\n'")
    expect((await python('__import__("subprocess").run(["cat"]).returncode', { stdin })).stdout).toBe('one\ntwo\n')
    expect((await python('input()')).ended.ending).toMatchObject({ kind: 'raised', name: 'EOFError' })
  })

  it('ends the call and keeps the state when the code exits', async () => {
    await python('kept = 7')
    expect((await python('exit(3)')).ended).toMatchObject({ ending: { kind: 'exited', code: 3 }, state: 'kept' })
    const { stderr, ended } = await python('import sys\nsys.exit("why")')
    expect([stderr, ended.ending]).toEqual(['why\n', { kind: 'exited', code: 1 }])
    expect((await python('kept')).result).toBe('7')
  })

  it.each([
    ['a loop', 'while True: pass'],
    ['a sleep', 'import time; time.sleep(60)'],
    ['a subprocess', 'import subprocess; subprocess.run(["sleep", "60"])'],
    ['a regular expression in C', 'import re; re.match(r"(a+)+$", "a" * 64 + "b")'],
    ['an awaited task', 'import asyncio; await asyncio.sleep(60)'],
  ])('interrupts %s at its limit and keeps the state', async (_what, code) => {
    await python('kept = 8')
    const { ended, stderr } = await python(code, { timeoutMs: 300 })
    expect(ended).toMatchObject({ ending: { kind: 'timed_out', limitMs: 300 }, state: 'kept' })
    expect(stderr).toMatch(/KeyboardInterrupt\n$/)
    expect(stderr).not.toContain('guest/kernels')
    expect((await python('kept')).result).toBe('8')
  })

  it('says in its answer and in the next one that the state of a killed kernel is lost', async () => {
    await python('lost = 1')
    const killed = await python('print("partial", flush=True)\nsum(iter(int, 1))', { timeoutMs: 300 })
    expect(killed.ended).toMatchObject({ ending: { kind: 'timed_out' }, state: 'lost' })
    expect(killed.stdout).toBe('partial\n')
    const next = await python('"lost" in globals()')
    expect([next.result, next.ended.lostBefore]).toEqual([
      'False',
      'the interpreter did not stop when it was interrupted',
    ])
    expect((await python('1')).ended.lostBefore).toBeUndefined()
  })

  it('says that the code has ended its process', async () => {
    const { ended } = await python('import os; os._exit(5)')
    expect(ended).toMatchObject({
      ending: { kind: 'kernel_ended', ending: { kind: 'exited', code: 5 } },
      state: 'lost',
    })
    expect((await python('1')).ended.lostBefore).toBe('the interpreter exited with code 5')
  })

  it('awaits at the top level and continues tasks between calls', async () => {
    expect(
      (await python('import asyncio\nt = asyncio.create_task(asyncio.sleep(0, "done"))\nawait asyncio.sleep(0)\n5'))
        .result,
    ).toBe('5')
    expect((await python('async def boom():\n    1 / 0\nawait boom()')).ended.ending).toMatchObject({
      name: 'ZeroDivisionError',
    })
    await python(
      'event = asyncio.Event()\nasync def later():\n    await asyncio.sleep(0.01)\n    print("ran between calls")\n    event.set()\nt = asyncio.create_task(later())\nawait asyncio.sleep(0)',
    )
    expect((await python('await event.wait(); t.done()')).stdout).toContain('ran between calls\n')
  })

  it('survives a fork that returns to the kernel', async () => {
    const { result, ended } = await python('import os\npid = os.fork()\npid > 0')
    expect([result, ended.ending.kind]).toEqual(['True', 'completed'])
    expect((await python('os.waitpid(pid, 0)[1]')).result).toBe('0')
  })

  it('delivers 100 MB of output without loss', async () => {
    const events = kernels.run(
      'sbx',
      { language: 'python', code: 'for i in range(100): print("x" * 999_999)', timeoutMs: 60_000 },
      new AbortController().signal,
    )
    let bytes = 0
    for await (const event of events) if (event.kind === 'output') bytes += event.bytes.length
    expect(bytes).toBe(100_000_000)
  })

  it('is not misled by frames and marks that code forges', async () => {
    const forged = await python(
      'import os\nfor fd in range(3, 200):\n    try: os.write(fd, b"ended 00 2\\n{}display 00 999999999\\n")\n    except OSError: pass\nprint("\\x1e00\\x1e")',
    )
    expect(['lost', 'kept']).toContain(forged.ended.state)
    expect((await python('1 + 1')).result).toBe('2')
  })
})
