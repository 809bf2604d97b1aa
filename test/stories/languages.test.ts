import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { execute } from '../support/calls.ts'
import { type Glovebox, Place } from '../support/glovebox.ts'

const place = new Place()
let server: Glovebox
let url = ''

beforeAll(async () => {
  server = await place.start()
  url = server.url
})
afterAll(async () => {
  await place.remove()
  expect(server.warnings).toEqual([])
})

type Case = [what: string, code: string, ending: object, stdout?: string | RegExp, stderr?: string | RegExp]
const exited = (code: number) => ({ kind: 'exited', code })
const died = (signal: string) => ({ kind: 'signaled', signal })

function tell(language: string, cases: readonly Case[]): void {
  it.each(cases)(`${language}: %s`, async (_what, code, ending, stdout = '', stderr = '') => {
    const run = await execute(url, language, code)
    expect(run).toMatchObject({ ending })
    expect(run.exit_code).toBe((ending as { code?: number }).code ?? run.exit_code)
    for (const [said, expected] of [[run.stdout, stdout] as const, [run.stderr, stderr] as const]) {
      if (typeof expected === 'string') expect(said).toBe(expected)
      else expect(said).toMatch(expected)
    }
  })
}

describe('python', () => {
  tell('python', [
    ['prints', 'print(6 * 7)', exited(0), '42\n'],
    ['keeps its two streams apart', 'import sys; print("o"); print("e", file=sys.stderr)', exited(0), 'o\n', 'e\n'],
    ['exits by sys.exit', 'import sys\nsys.exit(3)', exited(3)],
    ['exits by sys.exit with words', 'import sys\nsys.exit("no")', exited(1), '', 'no\n'],
    ['exits by os._exit', 'import os\nos._exit(7)', exited(7)],
    ['exits by raise SystemExit', 'raise SystemExit(300)', exited(300 % 256)],
    [
      'shows the line of an exception',
      'x = 1\n\nraise ValueError("bad")',
      exited(1),
      '',
      /line 3, in <module>[\s\S]*ValueError: bad\n$/,
    ],
    ['shows the line of a syntax error', 'x = 1\ny = (', exited(1), '', /line 2[\s\S]*SyntaxError/],
    ['dies of a signal', 'import os, signal; os.kill(os.getpid(), signal.SIGKILL)', died('KILL')],
    ['dies of a segmentation fault', 'import ctypes; ctypes.string_at(0)', died('SEGV')],
    ['dies of abort', 'import os; os.abort()', died('ABRT')],
    ['runs as a module of its own', 'print(__name__)', exited(0), '__main__\n'],
    [
      'has standard modules',
      'import json, sqlite3, ssl, asyncio; print(json.dumps({"a": 1}))',
      exited(0),
      '{"a": 1}\n',
    ],
    [
      'runs threads and processes',
      'import multiprocessing as m\nwith m.Pool(2) as p: print(p.map(abs, [-1, -2]))',
      exited(0),
      '[1, 2]\n',
    ],
    ['sees no input', 'import sys; print(repr(sys.stdin.read()))', exited(0), "''\n"],
    [
      'speaks UTF-8 in UTC',
      'import sys, time; print(sys.stdout.encoding, time.tzname[0], "ä€😀")',
      exited(0),
      'utf-8 UTC ä€😀\n',
    ],
    [
      'writes files at home and in /tmp',
      'import os\nopen("a", "w").write("x"); open("/tmp/b", "w").write("y"); print(os.getcwd() == os.environ["HOME"], open("a").read())',
      exited(0),
      'True x\n',
    ],
  ])
})

describe('node', () => {
  tell('node', [
    ['prints', 'console.log(6 * 7)', exited(0), '42\n'],
    ['keeps its two streams apart', 'console.log("o"); console.error("e")', exited(0), 'o\n', 'e\n'],
    ['exits by process.exit', 'process.exit(3)', exited(3)],
    ['exits by process.exitCode', 'process.exitCode = 4', exited(4)],
    ['shows the line of an exception', 'const x = 1\n\nthrow new Error("bad")', exited(1), '', /:3\n[\s\S]*Error: bad/],
    [
      'shows the line of a rejection that nobody handles',
      '1\nawait Promise.reject(new Error("late"))',
      exited(1),
      '',
      /Error: late\n.*:2:/,
    ],
    ['shows the line of a syntax error', 'const x = 1\nconst y = (', exited(1), '', /:2[\s\S]*SyntaxError/],
    ['dies of a signal', 'process.kill(process.pid, "SIGTERM"); setTimeout(() => {}, 9e5)', died('TERM')],
    ['dies of abort', 'process.abort()', died('ABRT'), '', /./],
    [
      'runs an ES module',
      'import { basename } from "node:path"\nconsole.log(basename("/a/b"), typeof module, typeof import.meta.url)',
      exited(0),
      'b undefined string\n',
    ],
    [
      'runs CommonJS',
      'const path = require("node:path")\nconsole.log(path.basename("/a/b"), typeof module)',
      exited(0),
      'b object\n',
    ],
    [
      'awaits at the top',
      'console.log(await new Promise((done) => setTimeout(() => done("later"), 10)))',
      exited(0),
      'later\n',
    ],
    [
      'awaits at the top beside require',
      'const { sep } = require("node:path")\nconsole.log(await Promise.resolve(sep))',
      exited(0),
      '/\n',
    ],
    [
      'awaits at the top beside import and require',
      'import { createRequire } from "node:module"\nconst require = createRequire(import.meta.url)\nconsole.log(await Promise.resolve(require("node:path").sep))',
      exited(0),
      '/\n',
    ],
    ['sees no input', 'console.log(JSON.stringify(require("fs").readFileSync(0, "utf8")))', exited(0), '""\n'],
    [
      'prints all before it exits',
      'for (let i = 0; i < 100_000; i++) console.log(i)\nprocess.exit(5)',
      exited(5),
      /^0\n1\n[\s\S]*\n99999\n$/,
    ],
    [
      'runs workers',
      'const { Worker } = require("worker_threads")\nnew Worker("console.log(1)", { eval: true })',
      exited(0),
      '1\n',
    ],
    [
      'speaks UTF-8 in UTC',
      'console.log("ä€😀", Intl.DateTimeFormat().resolvedOptions().timeZone)',
      exited(0),
      'ä€😀 UTC\n',
    ],
  ])
})

describe('typescript', () => {
  tell('typescript', [
    ['prints', 'const x: number = 6 * 7\nconsole.log(x)', exited(0), '42\n'],
    ['exits by process.exit', 'process.exit(3 as number)', exited(3)],
    [
      'shows the line of an exception',
      'interface A { b: string }\n\nthrow new Error("bad")',
      exited(1),
      '',
      /\[stdin\]:3\n[\s\S]*Error: bad\n/,
    ],
    ['shows what cannot be removed', 'enum A { B }\nconsole.log(A.B)', exited(1), '', /enum is not supported/],
    ['shows the line of a syntax error', 'const x: number = 1\nconst y: = 2', exited(1), '', /SyntaxError/],
    [
      'runs modules and top-level await',
      'import os from "node:os"\nconst n: number = await Promise.resolve(2)\nconsole.log(n, typeof os.cpus)',
      exited(0),
      '2 function\n',
    ],
  ])
})

describe('bash', () => {
  tell('bash', [
    ['prints', 'echo $((6 * 7))', exited(0), '42\n'],
    ['keeps its two streams apart', 'echo o; echo e >&2', exited(0), 'o\n', 'e\n'],
    ['exits by exit', 'exit 3', exited(3)],
    ['exits with the code of its last command', 'true\nfalse', exited(1)],
    ['goes on past a command that fails', 'false\necho on', exited(0), 'on\n'],
    ['stops there when told so', 'set -e\nfalse\necho on', exited(1)],
    ['shows the line of an unknown command', 'echo a\nnope', exited(127), 'a\n', /line 2: nope: command not found/],
    ['shows the line of a syntax error', 'echo a\nif then', exited(2), /^(a\n)?$/, /line 2: syntax error/],
    ['dies of a signal', 'kill -TERM $$', died('TERM')],
    ['tells of a child that died', 'sh -c "kill -KILL \\$\\$"; echo $?', exited(0), '137\n', /Killed|^$/],
    [
      'runs pipes, functions and here documents',
      'f() { tr a-z A-Z; }\nf <<< hello | rev\ncat <<X\ndoc\nX',
      exited(0),
      'OLLEH\ndoc\n',
    ],
    ['sees no input', 'cat; echo end', exited(0), 'end\n'],
    ['speaks UTF-8 in UTC', 'printf ä€😀 | wc -m; date +%Z', exited(0), '3\nUTC\n'],
    ['starts python and node', 'python3 -c "print(1)"; node -e "console.log(2)"', exited(0), '1\n2\n'],
  ])
})

describe('source code', () => {
  const languages = ['python', 'node', 'typescript', 'bash']
  const echo: Record<string, string> = {
    python: 'import sys; sys.stdout.write(sys.stdin.read())',
    node: 'process.stdin.pipe(process.stdout)',
    typescript: 'process.stdin.pipe(process.stdout as NodeJS.WritableStream)',
    bash: 'cat',
  }
  const show: Record<string, string> = {
    python: 'import os; print(os.environ["A"], os.environ["B_2"])',
    node: 'console.log(process.env.A, process.env.B_2)',
    typescript: 'console.log(process.env.A as string, process.env.B_2)',
    bash: 'echo "$A" "$B_2"',
  }
  const printLength: Record<string, (filler: string) => string> = {
    python: (filler) => `x = "${filler}"\nprint(len(x))`,
    node: (filler) => `const x = "${filler}"\nconsole.log(x.length)`,
    typescript: (filler) => `const x: string = "${filler}"\nconsole.log(x.length)`,
    bash: (filler) => `x="${filler}"\necho \${#x}`,
  }

  it.each(languages)('%s reads standard input', async (language) => {
    const stdin = 'first\nä€😀\n\u0000last without a line break'
    expect(await execute(url, language, echo[language]!, { stdin })).toMatchObject({ ending: exited(0), stdout: stdin })
  })

  it.each(languages)('%s reads two megabytes of standard input', async (language) => {
    const stdin = 'x'.repeat(2 * 1024 * 1024)
    const run = await execute(url, language, `${echo[language]}`, { stdin })
    expect(run).toMatchObject({ ending: exited(0), stdout_bytes: stdin.length })
  })

  it.each([
    ['CommonJS', 'console.log(require("node:fs").readFileSync(0, "utf8").length, typeof module)', '3 object'],
    ['an ES module', 'import { readFileSync } from "node:fs"\nconsole.log(readFileSync(0, "utf8").length)', '3'],
    ['await at the top', 'console.log(await Promise.resolve(require("node:fs").readFileSync(0, "utf8").length))', '3'],
  ])('node takes standard input in %s', async (_what, code, said) => {
    expect(await execute(url, 'node', code, { stdin: 'abc' })).toMatchObject({ stdout: `${said}\n`, stderr: '' })
  })

  it.each([
    ['python', 'import sys\n\nraise ValueError(1)', /line 3/],
    ['node', '1\n\nthrow new Error()', /:3\n/],
    ['bash', 'true\n\nnope', /line 3/],
  ])('%s shows the line of an error also beside standard input', async (language, code, line) => {
    expect((await execute(url, language, code, { stdin: 'abc' })).stderr).toMatch(line)
  })

  it.each(languages)('%s can leave its standard input unread', async (language) => {
    const done = /node|typescript/.test(language) ? 'console.log(1)' : language === 'bash' ? 'echo 1' : 'print(1)'
    const run = await execute(url, language, done, { stdin: 'y'.repeat(1024 * 1024) })
    expect(run).toMatchObject({ ending: exited(0), stdout: '1\n' })
  })

  it.each(languages)('%s receives environment variables', async (language) => {
    const run = await execute(url, language, show[language]!, { env_vars: { A: 'ä "quoted" $HOME', B_2: '' } })
    expect(run.stdout).toBe('ä "quoted" $HOME \n')
  })

  it.each(languages)('%s runs a megabyte of code', async (language) => {
    const frame = printLength[language]!
    const filler = 'z'.repeat(1024 * 1024 - Buffer.byteLength(frame('')))
    expect(await execute(url, language, frame(filler))).toMatchObject({
      ending: exited(0),
      stdout: `${filler.length}\n`,
    })
  })

  it.each(languages)('%s does not see the environment of the server', async (language) => {
    const code =
      language === 'bash' ? 'env' : language === 'node' ? 'console.log(process.env)' : 'import os; print(os.environ)'
    const { stdout } = await execute(url, language, code)
    // The one variable of the product that programs need: the descriptor for images.
    expect(stdout.replace('GLOVEBOX_IMAGES', '')).not.toMatch(/GLOVEBOX_|glovebox-story|VITEST/)
  })

  it('starts without anything that an earlier run left behind', async () => {
    await execute(
      url,
      'bash',
      'echo secret > ~/left; echo secret > /tmp/left; echo secret > /dev/shm/left; sleep 100 &',
    )
    const run = await execute(url, 'bash', 'cat ~/left /tmp/left /dev/shm/left; ls -A ~ /tmp /dev/shm; pgrep sleep')
    expect(run.stdout).not.toContain('secret')
    expect(run.stdout).not.toContain('left')
    expect(run.exit_code).toBe(1)
  })
})
