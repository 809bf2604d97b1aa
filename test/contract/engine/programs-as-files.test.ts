import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import type { Machine } from '../../../src/engine/machine.ts'
import { createSlot } from '../../../src/engine/slots/create-slot.ts'
import type { Slot } from '../../../src/engine/slots/slot.ts'
import {
  type EngineMachine,
  engineMachine,
  installed,
  prewarm,
  start,
  testLimits,
} from '../../support/engine-machine.ts'
import { inPrivateMounts } from '../../support/private-mounts.ts'

const runtime = (['crun', 'runc'] as const).find(installed)

/** A program, what it prints, and how its standard error ends. */
interface Case {
  code: string
  stdout: string
  stderr?: string
}

const python: Record<string, Case> = {
  'knows its file': {
    code: 'import os, sys\nprint(__file__, sys.argv, os.getcwd(), sys.path[0], os.path.isfile(__file__))',
    stdout: "/run/glovebox/main.py ['/run/glovebox/main.py'] /home/baponi /home/baponi True\n",
  },
  'cannot change its file': {
    code: 'try:\n    open(__file__, "a")\nexcept OSError as e:\n    print(e.strerror in ("Read-only file system", "Permission denied"))',
    stdout: 'True\n',
  },
  'reads its own source': {
    code: 'import inspect\ndef twice(x):\n    return 2 * x\nprint(inspect.getsource(twice), end="")',
    stdout: 'def twice(x):\n    return 2 * x\n',
  },
  'fails with its own source lines and no frame of another file': {
    code: 'def f(x):\n    return 1 / x\n\nf(0)\n',
    stdout: '',
    stderr:
      'Traceback (most recent call last):\n  File "/run/glovebox/main.py", line 4, in <module>\n    f(0)\n  File "/run/glovebox/main.py", line 2, in f\n    return 1 / x\n           ~~^~~\nZeroDivisionError: division by zero\n',
  },
  'imports a file of its home': {
    code: 'open("helper.py", "w").write("x = 41")\nimport helper\nprint(helper.x + 1, helper.__file__)',
    stdout: '42 /home/baponi/helper.py\n',
  },
  'imports from its home after it has gone elsewhere': {
    code: 'import os\nopen("helper.py", "w").write("x = 1")\nos.chdir("/tmp")\nimport helper\nprint(helper.x)',
    stdout: '1\n',
  },
  'imports a module anew that was rewritten with the same length': {
    code: [
      'import subprocess, sys',
      'for n in (1, 2):',
      '    open("m.py", "w").write(f"x = {n}")',
      '    subprocess.run([sys.executable, "-c", "import m; print(m.x)"])',
    ].join('\n'),
    stdout: '1\n2\n',
  },
  'maps over a pool of spawned processes': {
    code: 'import multiprocessing as m\ndef f(x): return x * x\nif __name__ == "__main__":\n    with m.get_context("spawn").Pool(2) as p: print(p.map_async(f, range(3)).get(15))',
    stdout: '[0, 1, 4]\n',
  },
  'maps over a pool of a fork server': {
    code: 'import multiprocessing as m\ndef f(x): return x * x\nif __name__ == "__main__":\n    with m.get_context("forkserver").Pool(2) as p: print(p.map_async(f, range(3)).get(15))',
    stdout: '[0, 1, 4]\n',
  },
  'maps over an executor of spawned processes': {
    code: 'import multiprocessing as m\nfrom concurrent.futures import ProcessPoolExecutor as E\ndef f(x): return x + 1\nif __name__ == "__main__":\n    with E(2, mp_context=m.get_context("spawn")) as e: print(list(e.map(f, range(3))))',
    stdout: '[1, 2, 3]\n',
  },
  'begins with a byte order mark and ends its lines as Windows does': {
    code: '\ufeffdef f():\r\n    return """a\r\nb"""\r\nprint(repr(f()))\r\n',
    stdout: "'a\\nb'\n",
  },
  'shows nothing of how it was started': {
    code: 'import os\nprint([n for n in os.environ if n.startswith(("LD_", "GLOVEBOX_P"))], b"PRELOAD=/" in open("/proc/self/environ", "rb").read())',
    stdout: '[] False\n',
  },
}

const node: Record<string, Case> = {
  'knows its file': {
    code: 'console.log(__filename, __dirname, process.cwd(), require("fs").existsSync(__filename))',
    stdout: '/run/glovebox/main.js /home/baponi /home/baponi true\n',
  },
  'requires a file of its home': {
    code: 'require("fs").writeFileSync("helper.js", "module.exports = 42"); console.log(require("./helper"))',
    stdout: '42\n',
  },
  'imports a file of its home': {
    code: 'import { writeFileSync } from "node:fs"; writeFileSync("helper.mjs", "export default 42"); console.log((await import("./helper.mjs")).default)',
    stdout: '42\n',
  },
  'runs itself in a worker': {
    code: 'const { Worker, isMainThread, parentPort } = require("worker_threads")\nif (isMainThread) {\n  require("fs").writeFileSync("helper.js", "module.exports = 42")\n  new Worker(__filename).on("message", (m) => console.log(m))\n} else parentPort.postMessage(require("./helper"))',
    stdout: '42\n',
  },
  'runs itself in a further process': {
    code: 'if (process.argv[2]) { process.send(require("./helper")); process.disconnect() } else {\n  require("fs").writeFileSync("helper.js", "module.exports = 42")\n  require("child_process").fork(__filename, ["again"]).on("message", (m) => console.log(m))\n}',
    stdout: '42\n',
  },
  'throws with its own source line': {
    code: 'function f() {\n  throw new TypeError("no")\n}\nf()\n',
    stdout: '',
    stderr: '[stdin]:2\n  throw new TypeError("no")\n  ^\n\nTypeError: no\n    at f ([stdin]:2:9)\n',
  },
  'is typed': { code: 'const x: number = 1\nconsole.log(x)', stdout: '1\n' },
  'begins with a byte order mark and ends its lines as Windows does': {
    code: '\ufeffconst x = 1\r\nconsole.log(JSON.stringify(`a\r\nb`), x)\r\n',
    stdout: '"a\\nb" 1\n',
  },
}

const bash: Record<string, Case> = {
  'knows its file': {
    code: 'echo "$0 $BASH_SOURCE $LINENO"',
    stdout: '/run/glovebox/main.sh /run/glovebox/main.sh 1\n',
  },
  'fails with its own line number': {
    code: 'true\nfalse_command\n',
    stdout: '',
    stderr: '/run/glovebox/main.sh: line 2: false_command: command not found\n',
  },
  'begins with a byte order mark and ends its lines as Windows does': {
    code: '\ufeffif true; then\r\n  echo "yes"\r\nfi\r\ncat <<END\r\nline\r\nEND\r\n',
    stdout: 'yes\nline\n',
  },
}

inPrivateMounts(import.meta.filename, () => {
  describe.skipIf(runtime === undefined)('a program', () => {
    let machine: EngineMachine
    let host: Machine
    let [fresh, prewarmed]: Slot[] = []

    beforeAll(async () => {
      machine = engineMachine(runtime ?? 'auto')
      host = await machine.open()
      ;[fresh, prewarmed] = [await createSlot(host), await createSlot(host)]
      for (const slot of [fresh, prewarmed]) slot.bind({ ...testLimits, memoryBytes: 256 * 1024 ** 2, pids: 64 })
    })
    afterAll(async () => {
      await fresh?.destroy()
      await prewarmed?.destroy()
      await host?.close()
      machine.remove()
      expect(machine.leftovers()).toEqual([])
    })

    for (const [language, cases] of Object.entries({ python, node, bash }) as [
      'python' | 'node' | 'bash',
      typeof node,
    ][])
      for (const [does, { code, stdout, stderr = '' }] of Object.entries(cases))
        it(`of ${language} that ${does} runs as a file, in a new interpreter and in a prewarmed one`, async () => {
          const ways = [
            { slot: fresh!, stdin: undefined },
            { slot: fresh!, stdin: 'a line\n' },
            ...(language === 'bash'
              ? []
              : [
                  { slot: prewarmed!, stdin: undefined },
                  { slot: prewarmed!, stdin: 'a line\n' },
                ]),
          ]
          for (const { slot, stdin } of ways) {
            if (slot === prewarmed) await prewarm(slot, language)
            const ran = await start(slot, language, code, stdin === undefined ? {} : { stdin }).ran
            expect(ran.stdout).toBe(stdout)
            expect(ran.stderr.slice(0, stderr.length || undefined)).toBe(stderr)
          }
        })

    it.each(['python', 'node'] as const)(
      'of %s reads all of its standard input when it was prewarmed',
      async (language) => {
        const input = `first\n${'x'.repeat(200_000)}\nlast`
        const code =
          language === 'python'
            ? 'import sys; t = sys.stdin.read(); print(len(t), t[:5], t[-4:])'
            : 'const t = require("fs").readFileSync(0, "utf8"); console.log(t.length, t.slice(0, 5), t.slice(-4))'
        await prewarm(prewarmed!, language)
        const ran = await start(prewarmed!, language, code, { stdin: input }).ran
        expect(ran).toMatchObject({ stdout: `${input.length} first last\n`, stderr: '' })
      },
    )
  })
})
