import { describe, expect, it } from 'vitest'
import { installed, prewarm, start, testLimits } from '../../support/engine-machine.ts'
import { inPrivateMounts } from '../../support/private-mounts.ts'
import { twoSlots } from '../../support/two-slots.ts'

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
    stdout: "/home/baponi/.glovebox-main.py ['/run/glovebox/main.py'] /home/baponi /home/baponi True\n",
  },
  'finds the files beside it': {
    code: [
      'import os, pathlib',
      'open("data.csv", "w").write("a,b")',
      'print(open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "data.csv")).read())',
      'print((pathlib.Path(__file__).resolve().parent / "data.csv").read_text())',
    ].join('\n'),
    stdout: 'a,b\na,b\n',
  },
  'finds a file beside itself by its first argument': {
    code: [
      'import os, sys',
      'open("data.csv", "w").write("a,b")',
      'print(open(os.path.join(os.path.dirname(os.path.abspath(sys.argv[0])), "data.csv")).read(), sys.argv, __name__)',
    ].join('\n'),
    stdout: "a,b ['/home/baponi/.glovebox-main.py'] __main__\n",
  },
  'starts itself again with its arguments': {
    code: 'import os, sys\nif "x" in sys.argv: print("again", os.getcwd(), sys.path[0])\nelse: os.execv(sys.executable, ["python3", sys.argv[0], "x"])',
    stdout: 'again /home/baponi /home/baponi\n',
  },
  'starts itself again': {
    code: 'import subprocess, sys\nif len(sys.argv) > 1: print("again", sys.argv[1:])\nelse: subprocess.run([sys.executable, __file__, "x"])',
    stdout: "again ['x']\n",
  },
  'asks for its file and spawns processes': {
    code: 'import multiprocessing as m, inspect\nhere = __file__\ndef f(x): return x * x\nclass A: pass\nif __name__ == "__main__":\n    with m.get_context("spawn").Pool(2) as p: print(p.map_async(f, range(3)).get(15), inspect.getsource(f), inspect.getsource(A), end="")',
    stdout: '[0, 1, 4] def f(x): return x * x\n class A: pass\n',
  },
  'does not ask for its file finds an empty home': {
    code: 'import os\nprint(os.listdir("."))',
    stdout: '[]\n',
  },
  'cannot change its file': {
    code: 'try:\n    open("/run/glovebox/main.py", "a")\nexcept OSError as e:\n    print(e.strerror in ("Read-only file system", "Permission denied"))',
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
    stdout: '/home/baponi/.glovebox-main.js /home/baponi /home/baponi true\n',
  },
  'is the main module': {
    code: 'if (require.main === module) console.log("main", process.mainModule === module, typeof exports)',
    stdout: 'main true object\n',
  },
  'asks for its file is the main module': {
    code: 'if (require.main === module) console.log(require("path").dirname(__filename), this === exports)',
    stdout: '/home/baponi true\n',
  },
  'is an ES module and asks whether it is the main one': {
    code: 'import { pathToFileURL } from "node:url"\nif (import.meta.url === pathToFileURL(process.argv[1]).href) console.log(import.meta.dirname, await 1)',
    stdout: '/home/baponi 1\n',
  },
  'does not ask for its file finds an empty home': {
    code: 'console.log(require("fs").readdirSync("."))',
    stdout: '[]\n',
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
    stdout: '/home/baponi/.glovebox-main.sh /home/baponi/.glovebox-main.sh 1\n',
  },
  'finds the files beside it': {
    code: 'echo a,b >data.csv\ncat "$(cd "$(dirname "$BASH_SOURCE")" && pwd)/data.csv" "$(dirname "$0")/data.csv"',
    stdout: 'a,b\na,b\n',
  },
  'starts itself again': { code: '[ -n "$1" ] && echo "again $1" || bash "$0" x', stdout: 'again x\n' },
  'only uses the $0 of awk finds an empty home': {
    code: "ls -A | awk '{print $0}'; awk 'END {print $0}' <<<x",
    stdout: 'x\n',
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

const typescript: Record<string, Case> = {
  'uses types': {
    code: [
      'interface Point { x: number; y: number }',
      'type Named<T> = T & { name: string }',
      'function only<T>(value: T): T { return value }',
      'const point: Named<Point> = only<Named<Point>>({ x: 1, y: 2, name: "p" })',
      'console.log(point satisfies Point)',
    ].join('\n'),
    stdout: "{ x: 1, y: 2, name: 'p' }\n",
  },
  'would be another program without the removal of types': {
    code: 'const f = <T,>(x: T) => x\nconst string = 1\nconsole.log(f<string>("x"))',
    stdout: 'x\n',
  },
  'imports another file of TypeScript': {
    code: [
      'import { writeFileSync } from "node:fs"',
      'writeFileSync("helper.ts", "export const twice = (x: number): number => 2 * x")',
      'const { twice } = await import("./helper.ts")',
      'console.log(twice(21) as number)',
    ].join('\n'),
    stdout: '42\n',
  },
  'requires another file of TypeScript': {
    code: 'require("fs").writeFileSync("helper.ts", "module.exports = 42 as number")\nconst x: number = require("./helper.ts")\nconsole.log(x, require.main === module)',
    stdout: '42 true\n',
  },
  'asks for its file': {
    code: 'const here: string = __dirname\nconsole.log(__filename, here)',
    stdout: '/home/baponi/.glovebox-main.ts /home/baponi\n',
  },
  'is an ES module that asks for its file': {
    code: 'import { join } from "node:path"\nconst file: string = join(import.meta.dirname, "x")\nconsole.log(file)',
    stdout: '/home/baponi/x\n',
  },
  'runs itself in a worker': {
    code: 'import { Worker, isMainThread, parentPort } from "node:worker_threads"\nif (isMainThread) new Worker(new URL(import.meta.url)).on("message", (m: number) => console.log(m))\nelse parentPort!.postMessage(42 as number)',
    stdout: '42\n',
  },
  'throws at its own line and column': {
    code: 'interface A { b: string }\n\nfunction f(a: A): never {\n  throw new TypeError(a.b)\n}\nf({ b: "no" } as A)\n',
    stdout: '',
    stderr: '[stdin]:4\n  throw new TypeError(a.b)\n  ^\n\nTypeError: no\n    at f ([stdin]:4:9)\n    at [stdin]:6:1\n',
  },
}

inPrivateMounts(import.meta.filename, () => {
  describe.skipIf(runtime === undefined)('a program', () => {
    const slots = twoSlots(runtime, { ...testLimits, memoryBytes: 256 * 1024 ** 2, pids: 64 })

    for (const [language, cases] of Object.entries({ python, node, typescript, bash }) as [
      'python' | 'node' | 'typescript' | 'bash',
      typeof node,
    ][])
      for (const [does, { code, stdout, stderr = '' }] of Object.entries(cases))
        it(`of ${language} that ${does} runs as a file, in a new interpreter and in a prewarmed one`, async () => {
          const ways = [
            { slot: slots.fresh, stdin: undefined },
            { slot: slots.fresh, stdin: 'a line\n' },
            ...(language === 'bash'
              ? []
              : [
                  { slot: slots.prewarmed, stdin: undefined },
                  { slot: slots.prewarmed, stdin: 'a line\n' },
                ]),
          ]
          for (const { slot, stdin } of ways) {
            if (slot === slots.prewarmed) await prewarm(slot, language)
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
        await prewarm(slots.prewarmed, language)
        const ran = await start(slots.prewarmed, language, code, { stdin: input }).ran
        expect(ran).toMatchObject({ stdout: `${input.length} first last\n`, stderr: '' })
      },
    )
  })
})
