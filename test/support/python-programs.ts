/** Programs that behave the same in a new python process and in a forked one. */
export const pythonPrograms: Record<string, string> = {
  'prints a line': 'print(1)',
  'prints nothing': '',
  'is a comment alone': '# nothing',
  'ends without a newline': 'print("x", end="")',
  'writes to both streams': 'import sys\nprint("out")\nprint("err", file=sys.stderr)',
  'writes bytes': 'import os\nos.write(1, bytes(range(256)))',
  'writes much at once': 'print("x" * 300_000)',
  'prints unicode': 'print("héllo, 世界 \\N{SNOWMAN}")',
  'prints a lone surrogate': 'print("\\ud800")',
  raises: 'def f():\n    return 1 / 0\n\nf()\n',
  'raises from another': 'try:\n    {}["a"]\nexcept KeyError as e:\n    raise ValueError("b") from e',
  'raises a group': 'raise ExceptionGroup("both", [ValueError(1), TypeError(2)])',
  'has an error of syntax': 'print("a")\nif True\n    print("b")\n',
  'has an error of indentation': 'if True:\nprint(1)\n',
  'holds a NUL': 'print(1)\0print(2)',
  'holds what is not UTF-8': '# coding: utf-8\nprint("\\xff")',
  'declares latin-1': '# coding: latin-1\nprint("é")',
  'begins with a byte order mark': '\ufeffprint("bom")',
  'ends its lines as DOS does': 'print(1)\r\nprint(2)\r\n',
  'exits with a number': 'import sys; sys.exit(3)',
  'exits with text': 'import sys; sys.exit("no good")',
  'exits with nothing': 'raise SystemExit',
  'exits with too large a number': 'import sys; sys.exit(257)',
  'exits with a negative number': 'import sys; sys.exit(-1)',
  'exits with a tuple': 'import sys; sys.exit((1, 2))',
  'exits from inside': 'import os; print("lost?", end=""); os._exit(7)',
  'runs what was registered for the end': 'import atexit\natexit.register(print, "last")\nprint("first")',
  'fails in what was registered for the end': 'import atexit\natexit.register(lambda: 1 / 0)',
  'flushes at the end': 'import sys\nsys.stdout = open(1, "w", closefd=False)\nprint("kept")',
  'finalizes objects': 'class A:\n    def __del__(self): print("gone")\na = A()\nprint("there")',
  'finalizes what hangs on a module':
    'import os\nclass A:\n    def __del__(self, write=os.write): write(1, b"gone\\n")\nos.a = A()',
  'finalizes what hangs on an object in a ring':
    'import os\nclass A:\n    def __del__(self, write=os.write): write(1, b"gone\\n")\na = A()\na.self = a',
  'finalizes what a context holds':
    'import contextvars, os\nclass A:\n    def __del__(self, write=os.write): write(1, b"gone\\n")\ncontextvars.ContextVar("a").set(A())',
  'finalizes what a thread holds':
    'import os, threading\nclass A:\n    def __del__(self, write=os.write): write(1, b"gone\\n")\nkept = threading.local()\nkept.a = A()',
  'finalizes what an exception holds':
    'import os\nclass A:\n    def __del__(self, write=os.write): write(1, b"gone\\n")\ndef f():\n    a = A()\n    raise ValueError(a is None)\nf()',
  'writes what a file on a module still holds': 'import os\nos.file = os.fdopen(os.dup(1), "w")\nos.file.write("kept")',
  'imports while objects are finalized':
    'class A:\n    def __del__(self):\n        try:\n            import os, json\n            print("found")\n        except ImportError as e:\n            print(repr(e))\na = A()',
  'calls when a reference dies at the end':
    'import weakref\nclass A: pass\na = A()\nweakref.finalize(a, print, "finalized")\nreference = weakref.ref(a, lambda _: print("dead"))',
  'knows its own names':
    'print(__name__, __file__, __doc__, __package__, __spec__, __cached__, __loader__, __builtins__, sorted(globals()))',
  'knows its arguments':
    'import sys\nprint(sys.argv, sys.orig_argv, sys.executable, sys.flags, sys.path, sys._xoptions)',
  'knows its modules': 'import sys\nprint(sorted(sys.modules))',
  'is the main module': 'import sys\nprint(sys.modules["__main__"].__dict__ is globals(), sys.modules["__main__"])',
  'imports itself': 'x = 5\nimport __main__\nprint(__main__.x)',
  'has no frame below its own': 'import sys\nprint(sys._getframe().f_back, sys._getframe().f_lineno)\nsys._getframe(1)',
  'warns the caller of its caller': 'import warnings\nwarnings.warn("who?", stacklevel=2)\nwarnings.warn("me")',
  'inspects its stack': 'import inspect\nprint([(f.filename, f.lineno, f.function) for f in inspect.stack()])',
  'inspects its source':
    'import inspect\ndef f(): pass\ntry:\n    print(inspect.getsource(f))\nexcept OSError as e:\n    print(e)',
  'recurses to the limit':
    'import sys\nprint(sys.getrecursionlimit())\ndef f(n):\n    global d\n    d = n\n    f(n + 1)\ntry:\n    f(0)\nexcept RecursionError as e:\n    print(d, e)',
  'recurses beyond the stack': 'import sys\nsys.setrecursionlimit(10**9)\ndef f(): f()\nf()',
  'pickles what it defines':
    'import pickle\nclass A:\n    def __eq__(self, o): return type(o) is A\nprint(pickle.loads(pickle.dumps(A())) == A(), pickle.dumps(A))',
  'has dataclasses and enums':
    'from dataclasses import dataclass\nfrom enum import Enum\n@dataclass\nclass P:\n    x: int = 1\nclass E(Enum):\n    A = 1\nprint(P(), E.A, repr(E))',
  'shows its environment':
    'import os\nprint(sorted(os.environ.items()), os.getenv("LD_PRELOAD"), os.environ == os.environ.copy())',
  'changes its environment for children':
    'import os, subprocess\nos.environ["A"] = "b"\ndel os.environ["TERM"]\nprint(subprocess.check_output("env | sort", shell=True, text=True))',
  'knows where and who it is':
    'import os, pwd, getpass\nprint(os.getcwd(), os.getuid(), os.getgid(), os.getgroups(), os.getpid(), os.getpgid(0), os.getsid(0), pwd.getpwuid(os.getuid()), getpass.getuser(), os.path.expanduser("~"))',
  'knows its umask':
    'import os\nprint(oct(os.umask(0)))\nopen("a", "w").close()\nos.mkdir("d")\nprint(oct(os.stat("a").st_mode), oct(os.stat("d").st_mode))',
  'knows its limits':
    'import resource\nprint([(n, resource.getrlimit(getattr(resource, n))) for n in sorted(dir(resource)) if n.startswith("RLIMIT_")])',
  'knows its descriptors':
    'import os, stat\nfor fd in range(12):\n    try:\n        s = os.fstat(fd)\n        print(fd, stat.filemode(s.st_mode), s.st_uid, os.get_inheritable(fd), os.get_blocking(fd))\n    except OSError as e:\n        print(fd, e.errno)\nprint(sorted(os.listdir("/proc/self/fd")))',
  'knows its streams':
    'import sys\nfor s in (sys.stdin, sys.stdout, sys.stderr):\n    print(s, s.encoding, s.errors, s.line_buffering, s.write_through, s.isatty(), s.buffer, s.seekable(), s is getattr(sys, "__" + s.name[1:-1] + "__"))',
  'finds its input at its end': 'import sys\nprint(repr(sys.stdin.read()), sys.stdin.readlines())\ninput()',
  'knows its status':
    'import re\nfor line in open("/proc/self/status"):\n    if re.match(r"(Name|Umask|Uid|Gid|Groups|NSpid|NStgid|NSpgid|NSsid|Threads|Sig[BIC]|ShdPnd|Cap|NoNewPrivs|Seccomp|Kthread)", line):\n        print(line, end="")\nprint(open("/proc/self/cmdline").read().split("\\0"), open("/proc/self/comm").read(), open("/proc/self/oom_score_adj").read())',
  'sees the machine as any run does':
    'import os, platform, socket\nprint(os.listdir("/proc/self/ns"), os.cpu_count(), os.sched_getaffinity(0), socket.gethostname(), platform.node(), platform.python_version(), sorted(p for p in os.listdir("/proc") if p.isdigit()))\nprint(open("/proc/self/mounts").read().count("\\n"), os.listdir("/tmp"), os.listdir("/"), os.listdir("."))',
  'dies of a signal': 'import os, signal\nos.kill(os.getpid(), signal.SIGTERM)\nimport time; time.sleep(9)',
  'dies of a fault': 'import ctypes\nctypes.string_at(0)',
  aborts: 'import os\nos.abort()',
  'raises a signal by its thread': 'import signal\nsignal.raise_signal(signal.SIGUSR1)',
  'is interrupted': 'import os, signal, time\nos.kill(os.getpid(), signal.SIGINT)\ntime.sleep(9)',
  'catches an interruption':
    'import os, signal, time\ntry:\n    os.kill(os.getpid(), signal.SIGINT)\n    time.sleep(9)\nexcept KeyboardInterrupt:\n    print("caught")\nraise KeyboardInterrupt',
  'handles signals':
    'import os, signal\nsignal.signal(signal.SIGUSR1, lambda n, f: print("got", n, f.f_lineno))\nos.kill(os.getpid(), signal.SIGUSR1)\nprint({s.name: str(signal.getsignal(s)) for s in signal.valid_signals() if isinstance(s, signal.Signals)}, signal.pthread_sigmask(signal.SIG_BLOCK, []))',
  'sets an alarm':
    'import signal, time\nsignal.signal(signal.SIGALRM, lambda *_: print("ring"))\nsignal.setitimer(signal.ITIMER_REAL, 0.01)\nsignal.pause()',
  'writes to a closed pipe': 'import os\nr, w = os.pipe()\nos.close(r)\nos.write(w, b"x")',
  'waits for its threads':
    'import threading, time\ndef f():\n    time.sleep(0.02)\n    print("thread")\nthreading.Thread(target=f).start()\nprint("main")',
  'leaves its daemon threads':
    'import threading, time\nthreading.Thread(target=time.sleep, args=(9,), daemon=True).start()\nprint("end")',
  'knows its threads':
    'import threading\nt = threading.current_thread()\nprint(t.name, t is threading.main_thread(), t.ident == threading.get_ident(), threading.get_native_id(), threading.active_count(), type(t), threading.enumerate() == [t], t.daemon, threading.stack_size())',
  'fails in a thread':
    'import threading\nt = threading.Thread(target=lambda: 1 / 0, name="worker")\nt.start(); t.join()',
  'uses a pool of threads':
    'from concurrent.futures import ThreadPoolExecutor\nwith ThreadPoolExecutor(4) as p:\n    print(list(p.map(lambda x: x * x, range(9))))',
  forks:
    'import os\npid = os.fork()\nif pid == 0:\n    print("child", os.getppid())\n    os._exit(5)\nprint(os.waitpid(pid, 0)[1], pid)',
  'forks a pool':
    'import multiprocessing as m\ndef f(x): return x * x\nif __name__ == "__main__":\n    with m.get_context("fork").Pool(2) as p:\n        print(p.map(f, range(5)))',
  'tries to spawn a pool':
    'import multiprocessing as m\nif __name__ == "__main__":\n    p = m.get_context("spawn").Process(target=print, args=("spawned",))\n    p.start(); p.join(); print(p.exitcode)',
  'uses a manager of multiprocessing':
    'import multiprocessing as m\nif __name__ == "__main__":\n    q = m.Queue()\n    p = m.Process(target=q.put, args=(42,))\n    p.start(); print(q.get()); p.join(); print(p.exitcode, p.name)',
  'runs a program':
    'import subprocess\nprint(subprocess.run(["sh", "-c", "echo out; echo err >&2; exit 3"], capture_output=True, text=True))',
  'runs python':
    'import subprocess, sys\nprint(subprocess.run([sys.executable, "-c", "import sys; print(sys.flags, sorted(sys.modules))"], capture_output=True, text=True).stdout)',
  'becomes another program':
    'import os\nprint("before", flush=True)\nos.execvp("sh", ["sh", "-c", "echo after; exit 4"])',
  'leaves an orphan': 'import subprocess\nsubprocess.Popen(["sleep", "1000"], start_new_session=True)\nprint("done")',
  'runs coroutines':
    'import asyncio\nasync def f(n):\n    await asyncio.sleep(0.001 * n)\n    return n\nasync def main():\n    print(await asyncio.gather(*map(f, range(5))))\n    p = await asyncio.create_subprocess_exec("echo", "sub", stdout=-1)\n    print(await p.communicate(), asyncio.get_running_loop())\nasyncio.run(main())'.replace(
      ', asyncio.get_running_loop())',
      ', type(asyncio.get_running_loop()))',
    ),
  'fails in a coroutine': 'import asyncio\nasync def f(): 1 / 0\nasyncio.run(f())',
  'speaks over loopback':
    'import socket\ns = socket.create_server(("127.0.0.1", 0))\nc = socket.create_connection(s.getsockname())\na, _ = s.accept()\nc.sendall(b"hi")\nprint(a.recv(9), socket.if_nameindex())',
  'finds no network':
    'import socket\ntry:\n    socket.create_connection(("192.0.2.1", 80), 1)\nexcept OSError as e:\n    print(e)',
  'writes files':
    'import os\nopen("x.txt", "w").write("y" * 9)\nos.symlink("x.txt", "l")\nprint(open("l").read(), os.stat("x.txt").st_uid, os.listdir("."))',
  'writes too large a file': 'open("big", "wb").truncate(2**40)',
  'runs out of descriptors':
    'import os\nfds = []\ntry:\n    while True: fds.append(os.dup(0))\nexcept OSError as e:\n    print(len(fds), e)',
  'tells the time':
    'import time, datetime\nprint(time.tzname, time.timezone, time.daylight, datetime.datetime.now().astimezone().tzname(), time.process_time() < 1, time.localtime(0))',
  'has a locale':
    'import locale, sys\nprint(locale.setlocale(locale.LC_ALL), locale.getpreferredencoding(), sys.getfilesystemencoding(), locale.getlocale())',
  'starts garbage collection as ever': 'import gc\nprint(gc.isenabled(), gc.get_threshold(), gc.garbage)',
  'changes its hooks':
    'import sys\nsys.excepthook = lambda *a: print("hooked", a[0].__name__, a[2].tb_lineno)\nsys.displayhook(3)\nraise ValueError',
  'traces itself':
    'import sys\nsys.setprofile(None)\nprint(sys.gettrace(), sys.getprofile(), sys.getswitchinterval(), sys.getrefcount(object()))',
  'compiles and evaluates': 'exec("y = 1\\nprint(y)")\nprint(eval("1 + 1"))\ncompile("(", "<c>", "exec")',
  'fails inside exec': 'exec(compile("\\n\\n1/0", "<mine>", "exec"))',
  'uses a database':
    'import sqlite3\nc = sqlite3.connect("a.db")\nc.execute("create table t (x)")\nc.execute("insert into t values (1)")\nprint(c.execute("select * from t").fetchall())',
  'imports the future': 'from __future__ import annotations\ndef f(x: nope): pass\nprint(f.__annotations__)',
  'annotates at the top': 'x: int = 1\nprint(__annotations__)',
  'misspells a name': 'import maths',
  'closes its output': 'import os\nos.close(1)\nprint("nowhere")',
  'has a limit on open files': 'import os\nprint(os.sysconf("SC_OPEN_MAX"), os.sysconf("SC_NPROCESSORS_ONLN"))',
}
