/** Programs that behave the same in a new node process and in a prewarmed one. */
export const nodePrograms: Record<string, string> = {
  'prints a line': 'console.log(1)',
  'prints nothing': '',
  'writes to both streams': 'console.log("out"); console.error("err"); process.stdout.write("x")',
  'prints much': 'process.stdout.write("x".repeat(300_000))',
  'is an ES module': 'import os from "node:os"; console.log(typeof os.cpus, await Promise.resolve(2), import.meta.url)',
  'is a CommonJS module':
    'const os = require("node:os"); console.log(typeof os.cpus, typeof module, __filename, __dirname)',
  'is typed': 'const x: number = 1; interface A { b: string }; console.log(x)',
  throws: 'function f() { throw new TypeError("no") }\n\nf()\n',
  rejects: 'Promise.reject(new Error("nobody catches"))',
  'has an error of syntax': 'const x = ;',
  'exits with a code': 'process.exit(3)',
  'sets a code to exit with': 'process.exitCode = 4',
  'runs what was registered for the end': 'process.on("exit", (code) => console.log("end", code)); process.exit(5)',
  'kills itself': 'process.kill(process.pid, "SIGKILL")',
  'ends itself': 'process.kill(process.pid, "SIGTERM"); setTimeout(() => {}, 9000)',
  aborts: 'process.abort()',
  'knows itself':
    'console.log(process.argv, process.execArgv, process.title, process.pid, process.ppid, process.cwd(), process.getuid(), process.getgroups(), process.umask().toString(8))',
  'shows its environment': 'console.log(Object.entries(process.env).sort())',
  'knows its descriptors':
    'const fs = require("fs"); for (let fd = 0; fd < 3; fd++) { const s = fs.fstatSync(fd); console.log(fd, s.isFIFO(), s.uid) } console.log(process.stdin.isTTY, process.stdout.isTTY)',
  'finds its input at its end':
    'console.log(JSON.stringify(require("fs").readFileSync(0, "utf8"))); process.stdin.on("end", () => console.log("end")).resume()',
  'sees the machine as any run does':
    'const os = require("os"), fs = require("fs"); console.log(os.cpus().length, os.availableParallelism(), os.hostname(), os.userInfo().username, fs.readdirSync("/").join(), fs.readdirSync("/tmp"), fs.readdirSync("."), fs.readdirSync("/proc").filter((n) => /^\\d+$/.test(n)))',
  'uses workers':
    'const { Worker } = require("worker_threads"); new Worker("require(\'worker_threads\').parentPort.postMessage(42)", { eval: true }).on("message", console.log)',
  'starts programs': 'console.log(require("child_process").execSync("echo sub; env | sort").toString())',
  'starts another node':
    'console.log(require("child_process").execFileSync(process.execPath, ["-p", "1 + 1"]).toString())',
  'speaks over loopback':
    'const net = require("net"); const s = net.createServer((c) => c.end("hi")).listen(0, "127.0.0.1", () => net.connect(s.address().port, "127.0.0.1").on("data", (d) => console.log(String(d))).on("close", () => s.close()))',
  'uses timers':
    'setImmediate(() => { console.log("a"); setTimeout(() => console.log("b"), 5) }); queueMicrotask(() => console.log("first"))',
  'knows the time since its start':
    'console.log(performance.now() > 0, process.uptime() > 0, process.cpuUsage().user > 0)',
}
