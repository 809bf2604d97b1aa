import { tmpdir } from 'node:os'
import { afterAll, describe, expect, it } from 'vitest'
import { openKernels } from '../../../src/core/sandboxes/kernels/kernels.ts'
import { callIn, kernelsInSources } from '../../support/kernel-calls.ts'
import { PlainProcesses } from '../../support/plain-processes.ts'

const processes = new PlainProcesses({ cwd: tmpdir() })
const kernels = openKernels(processes, { dir: kernelsInSources, graceMs: 1_000 })
const call = callIn(kernels, 'sbx')
const bash = (code: string, options = {}) => call('bash', code, options)

afterAll(() => processes[Symbol.asyncDispose]())

describe('a bash context', () => {
  it('keeps variables, arrays, functions, aliases, exports and the working directory', async () => {
    await bash(
      "x=1; declare -a arr=(1 'two words'); declare -A map=([k]=v); g() { echo g; }; alias ll=ls; export E=2; cd /usr",
    )
    expect((await bash(`echo $x "\${arr[1]}" \${map[k]} $PWD; g; alias ll; env | grep ^E=`)).stdout).toBe(
      "1 two words v /usr\ng\nalias ll='ls'\nE=2\n",
    )
  })

  it('ends with the exit code of the last command, which the next call sees', async () => {
    expect((await bash('true; (exit 7)')).ended.ending).toEqual({ kind: 'completed', exitCode: 7 })
    expect((await bash('echo $?')).stdout).toBe('7\n')
  })

  it('reports errors with the lines of the code', async () => {
    const { stderr, ended } = await bash('echo é\nno_such_command_here\nfalse')
    expect([stderr, ended.ending]).toEqual([
      'bash: line 2: no_such_command_here: command not found\n',
      { kind: 'completed', exitCode: 1 },
    ])
    expect((await bash('if fi')).stderr).toContain("line 1: syntax error near unexpected token `fi'")
  })

  it.each([
    ['exit', 'exit 3', 3],
    ['set -e', 'set -e; (exit 4); echo not reached', 4],
    ['a missing variable', 'set -u; : $missing', 127],
  ])('keeps the state when %s ends the shell', async (_what, code, status) => {
    await bash("kept='a b'; arr=(1 2); f() { echo f; }; readonly r=5")
    const { ended } = await bash(code)
    expect(ended).toMatchObject({ ending: { kind: 'exited', code: status }, state: 'kept' })
    expect((await bash('set +eu; echo "$kept" $r; f')).stdout).toBe('a b 5\nf\n')
  })

  it.each([
    ['a command', 'sleep 60; echo not reached'],
    ['a loop', 'while :; do :; done; echo not reached'],
    ['a pipeline', 'yes | cat >/dev/null; echo not reached'],
  ])('interrupts %s at its limit and keeps the state', async (_what, code) => {
    await bash('kept=8')
    const { ended, stdout } = await bash(code, { timeoutMs: 300 })
    expect([ended.ending, ended.state, stdout]).toEqual([{ kind: 'timed_out', limitMs: 300 }, 'kept', ''])
    expect((await bash('echo $kept')).stdout).toBe('8\n')
  })

  it('remains one shell when processes are killed before they execute their program', async () => {
    // Later calls of its context would report the killed jobs.
    const other = callIn(kernels, 'killing')
    await other('bash', 'kept=9')
    for (let round = 0; round < 3; round += 1) {
      const { ended } = await other('bash', 'for i in {1..50}; do sleep 60 & kill $!; done')
      expect(ended).toMatchObject({ ending: { kind: 'completed', exitCode: 0 }, state: 'kept' })
    }
    // A signal can be lost between fork and exec, with any shell that has a trap on EXIT.
    expect((await other('bash', 'kill -9 $(jobs -p); echo $kept')).stdout).toBe('9\n')
  })

  it('continues after break, continue and redirections of the shell itself', async () => {
    expect((await bash('break')).ended.ending).toEqual({ kind: 'completed', exitCode: 0 })
    expect((await bash('continue')).ended.ending).toEqual({ kind: 'completed', exitCode: 0 })
    await bash('exec >/dev/null')
    expect((await bash('echo hidden')).stdout).toBe('')
    expect((await bash('exec >&2; echo shown')).stderr).toBe('shown\n')
  })

  it('passes exact standard input and variables to one call', async () => {
    const stdin = Buffer.from('a\0b\\n%s\n\xff', 'latin1')
    expect((await bash('od -An -c >&2', { stdin })).stderr).toBe('   a  \\0   b   \\   n   %   s  \\n 377\n')
    expect((await bash('cat >&2')).stderr).toBe('')
    expect((await bash('echo "$A" >&2', { env: { A: "it's $x" } })).stderr).toBe("it's $x\n")
    expect((await bash('echo "<$A>" >&2')).stderr).toBe('<>\n')
  })

  it('keeps background processes, and returns while one holds its output', async () => {
    await bash('sleep 60 & job=$!')
    expect((await bash('kill $job && echo ended >&2')).stderr).toBe('ended\n')
  })

  it('refuses code with a NUL character', async () => {
    await expect(bash('echo \0')).rejects.toMatchObject({ code: 'invalid_argument' })
  })

  it('says that the state is lost when the code replaces the shell', async () => {
    expect((await bash('exec true')).ended).toMatchObject({
      ending: { kind: 'kernel_ended', ending: { kind: 'exited', code: 0 } },
      state: 'lost',
    })
    const next = await bash('echo "<$kept>"')
    expect([next.stdout, next.ended.lostBefore]).toEqual(['<>\n', 'the interpreter exited with code 0'])
  })
})
