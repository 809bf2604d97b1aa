"""Frozen copies of the Python kernel, so that it can be put back into the state before its last calls.

After each call the kernel forks a copy, which shares its memory until one of them writes, and waits for a signal. A keeper,
the process that core has started, knows the copies. It replaces the kernel by a copy when core requests it, and when the
kernel has died. The copies are no children of the kernel, where the code would wait for them.
"""

import json
import math
import os
import select
import signal
import sys
import time

_THAW = signal.SIGUSR2
_KILL = signal.SIGUSR1  # core sends it to the keeper when code does not stop
_BLOCKED = {signal.SIGINT, _THAW}
_MAX_BYTES = 256 << 20  # memory that copies hold beside the kernel, and at most a quarter of the memory
_CHECK_SECONDS = 0.1


def start(channel, count):
    """Splits the process: returns in the kernel, and keeps the copies in the keeper.

    Has to be called before the kernel is set up. At most `count` calls can be rewound.
    """
    orders = os.pipe()
    answers = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(orders[0])
        os.close(answers[1])
        return Copies(channel, orders[1], answers[0])
    for descriptor in (0, orders[1], answers[0]):
        os.close(descriptor)
    _Keeper(channel, orders[0], answers[1], pid, count).run()


class Copies:
    """The kernel's side: makes copies and talks to the keeper."""

    def __init__(self, channel, orders, answers):
        self.channel = channel
        self.orders = orders
        self.answers = answers
        self.middle = None

    def begin(self, nonce):
        self._reap()
        self._tell("call", nonce)

    def _reap(self):
        """Waits for the process between the kernel and its last copy, which the code must not find."""
        if self.middle is not None:
            os.waitpid(self.middle, 0)
            self.middle = None

    def keep(self, kernel):
        """Makes a copy. Returns in the kernel, and in the copy once that takes its place."""
        generator = sys.modules.get("random")
        seed = generator.getstate() if generator else None
        signal.pthread_sigmask(signal.SIG_BLOCK, _BLOCKED)
        self._reap()
        self.middle = os.fork()
        if self.middle:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, _BLOCKED)
            return
        try:
            copy = os.fork()
            if copy:
                # The keeper knows the copy before the kernel continues with what waits for this process.
                self._tell("frozen", copy, kernel.count)
                os._exit(0)
        except OSError:
            os._exit(1)
        self.middle = None
        self._wait(kernel)
        if seed is not None:
            # A fork seeds the generator of the child.
            generator.setstate(seed)
        self.keep(kernel)

    def _wait(self, kernel):
        kernel.pid = os.getpid()
        usual = _read("/proc/self/oom_score_adj")
        _write("/proc/self/oom_score_adj", "900")
        signal.sigwait({_THAW})
        while signal.sigtimedwait({signal.SIGINT}, 0):
            pass
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _BLOCKED)
        _write("/proc/self/oom_score_adj", usual)
        kind, nonce, payload = self._answer()
        self.channel.mark(nonce)
        self.channel.send(kind, nonce, payload.encode())

    def rewind(self, nonce, calls):
        """The keeper ends this process, unless there is no such copy."""
        self._reap()
        self._tell("rewind", nonce, calls, json.dumps(_not_rewound()))
        _, _, payload = self._answer()
        self.channel.mark(nonce)
        self.channel.send("rewound", nonce, payload.encode())

    def _tell(self, *words):
        os.write(self.orders, (" ".join(map(str, words)) + "\n").encode())

    def _answer(self):
        line = b""
        while not line.endswith(b"\n"):
            line += os.read(self.answers, 1) or b"\n"
        kind, nonce, payload = line.decode().rstrip("\n").split(" ", 2)
        return kind, nonce, payload


class _Keeper:
    def __init__(self, channel, orders, answers, active, count):
        self.channel = channel
        self.orders = orders
        self.answers = answers
        self.active = active
        self.status = None
        self.watch = os.pidfd_open(active)
        self.count = count
        self.calls = 0
        self.nonce = "0"
        self.copies = []  # (pid, calls), oldest first
        self.buffer = b""
        self.check_at = None  # by the monotonic clock, in seconds; None: measured since the last copy
        self.limit = min(_MAX_BYTES, os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 4)
        total = _read("/proc/meminfo").split()
        if len(total) > 1 and total[1].isdigit():
            self.limit = min(_MAX_BYTES, int(total[1]) * 1024 // 4)

    def run(self):
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        _adopt_orphans()
        signal.signal(_KILL, lambda *_: self._kill_active())
        while True:
            poll = select.poll()
            poll.register(self.orders, select.POLLIN)
            poll.register(self.watch, select.POLLIN)
            ready = [descriptor for descriptor, _ in poll.poll(self._until_check_ms())]
            self._reap()
            if self.orders in ready:
                self._receive()
            elif self.watch in ready:
                self._restore()
            if self._until_check_ms() == 0:
                self._limit_memory()

    def _until_check_ms(self):
        """Returns the time until the memory of the copies is measured, also while calls follow each other at once."""
        return None if self.check_at is None else max(0, math.ceil((self.check_at - time.monotonic()) * 1000))

    def _receive(self):
        self.buffer += os.read(self.orders, 65536)
        while b"\n" in self.buffer:
            line, self.buffer = self.buffer.split(b"\n", 1)
            try:
                self._obey(line.decode().split(" ", 3))
            except (ValueError, IndexError):
                pass  # The code can write here as well.

    def _obey(self, words):
        if words[0] == "call":
            self.nonce = words[1]
        elif words[0] == "frozen":
            self.calls = int(words[2])
            self.nonce = "0"
            self.copies.append((int(words[1]), self.calls))
            while len(self.copies) > self.count + 1:
                self._drop(0)
            if self.check_at is None:
                self.check_at = time.monotonic() + _CHECK_SECONDS
        elif words[0] == "rewind":
            self._rewind(words[1], int(words[2]), json.loads(words[3]))

    def _rewind(self, nonce, calls, lost):
        if self.check_at is not None:
            self._limit_memory()
        target = [copy for copy in self.copies if copy[1] == self.calls - calls and _lives(copy[0])]
        if not target:
            kept = self.calls - min((copy[1] for copy in self.copies if _lives(copy[0])), default=self.calls)
            self._answer("rewound", nonce, {"error": "it keeps the states before its last %d calls" % kept})
            return
        self._end_active()
        while self.copies[-1] != target[0]:
            self._drop(-1)
        self._thaw("rewound", nonce, {"calls": calls, "lost": lost})

    def _restore(self):
        """The kernel has died."""
        status = self._end_active()
        ending = {"signal": os.WTERMSIG(status)} if os.WIFSIGNALED(status) else {"exited": os.WEXITSTATUS(status)}
        while self.copies and not _lives(self.copies[-1][0]):
            self.copies.pop()
        if not self.copies:
            os._exit(ending.get("exited", 1))
        self._thaw("restored", self.nonce, ending)

    def _thaw(self, kind, nonce, payload):
        self.active, self.calls = self.copies.pop()
        self.status = None
        os.close(self.watch)
        self.watch = os.pidfd_open(self.active)
        self.nonce = "0"
        self._answer(kind, nonce, payload)
        os.kill(self.active, _THAW)

    def _answer(self, kind, nonce, payload):
        os.write(self.answers, ("%s %s %s\n" % (kind, nonce, json.dumps(payload))).encode())

    def _end_active(self):
        """Returns its status."""
        _kill(self.active)
        poll = select.poll()
        poll.register(self.watch, select.POLLIN)
        poll.poll()
        self._reap()
        return self.status or 0

    def _reap(self):
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            if pid == self.active:
                self.status = status

    def _kill_active(self):
        """Kills the kernel with the processes of its call, as far as they are in its process group."""
        kept = {os.getpid()} | {pid for pid, _ in self.copies}
        group = os.getpgrp()
        for name in os.listdir("/proc"):
            fields = _read("/proc/%s/stat" % name).rpartition(")")[2].split() if name.isdigit() else []
            if len(fields) > 2 and int(fields[2]) == group and int(name) not in kept:
                _kill(int(name))

    def _drop(self, index):
        _kill(self.copies.pop(index)[0])

    def _limit_memory(self):
        self.check_at = None
        while len(self.copies) > 1 and sum(_held(pid) for pid, _ in self.copies) > self.limit:
            self._drop(0)


def _adopt_orphans():
    """Makes this process the parent of processes whose own has ended, so that it learns how the kernel ends."""
    import ctypes

    ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)  # PR_SET_CHILD_SUBREAPER


def _not_rewound():
    """What a copy does not have, or shares with the kernel."""
    threads = sys.modules.get("threading")
    found = {
        "threads": len(threads.enumerate()) - 1 if threads else 0,
        "processes": len(_read("/proc/self/task/%d/children" % os.getpid()).split()),
        "sockets": sum(1 for number in os.listdir("/proc/self/fd") if _is_socket(int(number))),
    }
    return ["%s: %d" % (what, count) for what, count in found.items() if count > 0]


def _is_socket(number):
    import stat

    try:
        return number < 100 and stat.S_ISSOCK(os.fstat(number).st_mode) and number > 2
    except OSError:
        return False


def _held(pid):
    """Memory that a copy holds, with its share of what several copies hold, in bytes."""
    for line in _read("/proc/%d/smaps_rollup" % pid).splitlines():
        if line.startswith("Pss_Anon:"):
            return int(line.split()[1]) * 1024
    return 0


def _lives(pid):
    return _read("/proc/%d/stat" % pid).rpartition(")")[2].split()[:1] not in ([], ["Z"])


def _kill(pid):
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        pass


def _read(path):
    try:
        with open(path) as file:
            return file.read()
    except OSError:
        return ""


def _write(path, text):
    try:
        with open(path, "w") as file:
            file.write(text)
    except OSError:
        pass
