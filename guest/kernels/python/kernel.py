"""The Python kernel: runs code that arrives on descriptor 3 and keeps the state of the interpreter between calls.

guest/kernels/PROTOCOL.md specifies the frames. The namespace of the code is a module `__main__` of its own.
"""

import _ast
import builtins
import json
import linecache
import os
import signal
import sys
import types

_SOURCES = 500  # source texts of past calls that tracebacks and inspect can show
_SOURCE_BYTES = 4 << 20




class Kernel:
    def __init__(self, channel):
        self.channel = channel
        self.pid = os.getpid()
        self.count = 0
        self.nonce = "0"
        self.flags = _ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
        self.loop = None
        self.sources = []
        self.input = streams.Input()
        self.copies = None
        sys.stdout = sys.__stdout__ = streams.output(1)
        sys.stderr = sys.__stderr__ = streams.output(2)
        self.display = display.Displays(self._send_display)
        sys.displayhook = self.display.show_result
        builtins.display = self.display.display
        for name in ("exit", "quit"):
            setattr(builtins, name, _Exit(name))
        self.main = types.ModuleType("__main__")
        self.main.__builtins__ = builtins
        sys.modules["__main__"] = self.main
        sys.argv = [""]
        sys.path[0] = ""
        signal.signal(signal.SIGINT, _ignore)

    def _send_display(self, bundle):
        # What the code forks shares the channel, and its frames would get between those of this process.
        if os.getpid() == self.pid:
            # Little follows a result but the end of the call.
            send = self.channel.hold_json if bundle["result"] else self.channel.send_json
            send("display", self.nonce, bundle)

    def serve(self):
        """Handles frames until the channel ends."""
        while True:
            self._run_tasks()
            frame = self._receive()
            if frame is None:
                return
            kind, nonce, payload = frame
            if kind == "call":
                self._call(nonce, json.loads(payload))
            elif kind == "sync":
                self.channel.mark(nonce)
                self.channel.send("synced", nonce)
            elif kind == "rewind":
                self._rewind(nonce, int(payload))
            if self.copies is not None and kind == "call":
                self.copies.keep(self)

    def _receive(self):
        while True:
            try:
                return self.channel.receive()
            except (KeyboardInterrupt, InterruptedError):
                pass

    def _call(self, nonce, request):
        self.nonce = nonce
        self.count += 1
        if self.copies is not None:
            self.copies.begin(nonce)
        stdin = request.get("stdin")
        if stdin is not None:
            import base64

            stdin = base64.b64decode(stdin)
        self.input.set(stdin)
        env = request.get("env") or {}
        before = {name: os.environ.get(name) for name in env}
        os.environ.update(env)
        try:
            ended = self._run(request["code"])
        finally:
            if os.getpid() != self.pid:
                # A process that the code has forked and that reached the end of the code.
                self._flush()
                os._exit(0)
        for name, value in before.items():
            if os.environ.get(name) == env[name]:
                os.environ.pop(name) if value is None else os.environ.__setitem__(name, value)
        self.channel.mark(nonce)
        self.channel.send_json("ended", nonce, ended)

    def _run(self, code):
        name = "<call %d>" % self.count
        self._remember(name, code)
        try:
            try:
                # The handler in C, so that no frame of the kernel is part of the traceback.
                signal.signal(signal.SIGINT, signal.default_int_handler)
                self._execute(self._compile(code, name))
                self.display.show_figures()
                self._flush()
            finally:
                signal.signal(signal.SIGINT, _ignore)
        except SystemExit as exit:
            self._flush()
            return {"exited": _exit_code(exit)}
        except BaseException as error:
            self._flush()
            return self._describe(error)
        return {}

    def _compile(self, code, name):
        tree = compile(code, name, "exec", _ast.PyCF_ONLY_AST | self.flags)
        last = []
        if tree.body and isinstance(tree.body[-1], _ast.Expr) and not code.rstrip().endswith(";"):
            last = [_ast.Interactive([tree.body.pop()])]
        parts = [compile(tree, name, "exec", self.flags, dont_inherit=True)] if tree.body else []
        if "__future__" in code:
            for part in parts:
                self._inherit_future(part)
        return parts + [compile(part, name, "single", self.flags, dont_inherit=True) for part in last]

    def _inherit_future(self, part):
        import __future__

        for feature in __future__.all_feature_names:
            flag = getattr(__future__, feature).compiler_flag
            if part.co_flags & flag:
                self.flags |= flag

    def _execute(self, parts):
        if not any(part.co_flags & 0x80 for part in parts):  # CO_COROUTINE
            for part in parts:
                eval(part, self.main.__dict__)
            return
        import asyncio

        async def run():
            for part in parts:
                result = eval(part, self.main.__dict__)
                if part.co_flags & 0x80:
                    await result

        if self.loop is None or self.loop.is_closed():
            self.loop = asyncio.new_event_loop()
        asyncio.set_event_loop(self.loop)
        task = self.loop.create_task(run())
        try:
            self.loop.run_until_complete(task)
        except KeyboardInterrupt:
            if task.done():
                raise
            task.cancel()
            try:
                self.loop.run_until_complete(task)
            except asyncio.CancelledError as cancelled:
                # Its traceback says where the code waited.
                raise KeyboardInterrupt().with_traceback(cancelled.__traceback__) from None

    def _run_tasks(self):
        """Lets tasks of the event loop continue while the kernel waits for a frame."""
        if self.loop is None or self.loop.is_closed() or self.channel.buffer:
            return
        import asyncio

        if not asyncio.all_tasks(self.loop):
            return
        try:
            self.loop.add_reader(self.channel.descriptor, self.loop.stop)
            self.loop.run_forever()
        except BaseException as error:
            sys.stderr.write(self._describe(error).get("error", {}).get("traceback", ""))
        finally:
            self.loop.remove_reader(self.channel.descriptor)

    def _remember(self, name, code):
        lines = code.splitlines(True)
        linecache.cache[name] = (len(code), None, lines, name)
        self.sources.append((name, len(code)))
        while len(self.sources) > _SOURCES or (
            len(self.sources) > 1 and sum(size for _, size in self.sources) > _SOURCE_BYTES
        ):
            linecache.cache.pop(self.sources.pop(0)[0], None)

    def _describe(self, error):
        import traceback

        trace = error.__traceback__
        names = {name for name, _ in self.sources}
        while trace is not None and trace.tb_frame.f_code.co_filename not in names:
            trace = trace.tb_next
        error.__traceback__ = trace
        try:
            text = "".join(traceback.format_exception(type(error), error, trace))
            message = str(error)
        except Exception:
            text = message = "%s (its text could not be produced)\n" % type(error).__name__
        sys.last_type, sys.last_value, sys.last_traceback = type(error), error, trace
        if isinstance(error, KeyboardInterrupt):
            return {"interrupted": True, "traceback": text[-100000:]}
        kind = type(error)
        name = kind.__name__ if kind.__module__ == "builtins" else "%s.%s" % (kind.__module__, kind.__qualname__)
        return {"error": {"name": name, "message": message[:100000], "traceback": text[-100000:]}}

    def _flush(self):
        for stream in (sys.stdout, sys.stderr, sys.__stdout__, sys.__stderr__):
            try:
                stream.flush()
            except Exception:
                pass

    def _rewind(self, nonce, calls):
        if self.copies is None:
            self.channel.send_json("rewound", nonce, {"error": "this kernel keeps no copies"})
        else:
            self.copies.rewind(nonce, calls)


def _ignore(_number, _frame):
    """Handles SIGINT between calls."""


class _Exit:
    """`exit` and `quit`: end the call, not the kernel."""

    def __init__(self, name):
        self.name = name

    def __repr__(self):
        return "Use %s() to end the call. The kernel keeps its state." % self.name

    def __call__(self, code=None):
        raise SystemExit(code)


def _exit_code(exit):
    code = exit.code
    if code is None:
        return 0
    if isinstance(code, int):
        return code & 0xFF
    print(code, file=sys.stderr, flush=True)
    return 1


def load(load_module):
    """Loads the other modules that every kernel needs. `load_module` returns a module of the kernel."""
    global display, streams
    display = load_module("display")
    streams = load_module("streams")


def serve(load_module, copies):
    """Serves the channel until it ends, after `load`."""
    channel = streams.Channel()
    kept = load_module("rewind").start(load_module, channel, copies) if copies > 0 else None
    kernel = Kernel(channel)
    channel.send_json("ready", "0", {"version": sys.version.split()[0]})
    if kept is not None:
        kernel.copies = kept
        kept.keep(kernel)
    kernel.serve()
