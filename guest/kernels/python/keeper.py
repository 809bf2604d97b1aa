"""The keeper of the frozen copies of a Python kernel, see rewind.py.

Copies are processes of the sandbox, and their memory is charged to it. So the keepers bound those of all of its contexts
together: each one drops the oldest copies when there are too many, whichever context they belong to.
"""

import json
import math
import os
import select
import signal
import time

_THAW = signal.SIGUSR2
_KILL = signal.SIGUSR1  # core sends it to the keeper when code does not stop
_FROZEN = "900"  # oom_score_adj of copies
_MAX_BYTES = 256 << 20  # memory that copies of all contexts hold, and at most a quarter of the memory
_CHECK_SECONDS = 0.1


class Keeper:
    def __init__(self, orders, answers, active, count):
        self.orders = orders
        self.answers = answers
        self.active = active
        self.status = None
        self.watch = os.pidfd_open(active)
        self.count = count
        self.calls = 0  # that have ended
        self.nonce = "0"
        self.copies = []  # (pid, calls), oldest first, all alive
        self.buffer = b""
        self.check_at = None  # by the monotonic clock, in seconds; None: measured since the last copy
        self.limit = min(_MAX_BYTES, os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 4)
        total = _read("/proc/meminfo").split()
        if len(total) > 1 and total[1].isdigit():
            self.limit = min(_MAX_BYTES, int(total[1]) * 1024 // 4)
        processes = _read("/sys/fs/cgroup/pids.max").strip()
        self.processes = max(int(processes) // 2, 2) if processes.isdigit() else 1 << 20
        self.ended, wake = os.pipe()
        for end in (self.ended, wake):
            os.set_blocking(end, False)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)

    def run(self):
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        # Copies that another keeper drops, and those that are killed for memory, are waited for at once.
        signal.signal(signal.SIGCHLD, lambda *_: None)
        _adopt_orphans()
        os.write(self.answers, b"ready 0 {}\n")
        signal.signal(_KILL, lambda *_: self._kill_active())
        while True:
            poll = select.poll()
            poll.register(self.orders, select.POLLIN)
            poll.register(self.watch, select.POLLIN)
            poll.register(self.ended, select.POLLIN)
            ready = [descriptor for descriptor, _ in poll.poll(self._until_check_ms())]
            if self.ended in ready:
                os.read(self.ended, 4096)
            self._reap()
            if self.orders in ready:
                self._receive()
            elif self.watch in ready:
                self._restore()
            if self._until_check_ms() == 0:
                self._limit_copies()

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
            if len(_processes()) > self.processes:
                self._limit_copies()
            elif self.check_at is None:
                self.check_at = time.monotonic() + _CHECK_SECONDS
        elif words[0] == "ended":
            self.calls = int(words[1])
            self.nonce = "0"
        elif words[0] == "rewind":
            self._rewind(words[1], int(words[2]), json.loads(words[3]))

    def _rewind(self, nonce, calls, lost):
        if self.check_at is not None:
            self._limit_copies()
        self._reap()
        target = [copy for copy in self.copies if copy[1] == self.calls - calls]
        if not target:
            self._answer("rewound", nonce, {"error": "it keeps the states " + self._describe_kept()})
            return
        self._end_active()
        while self.copies[-1] != target[0]:
            self._drop(-1)
        self._thaw("rewound", nonce, {"calls": calls, "lost": lost})

    def _describe_kept(self):
        """Returns which states there are, as `before its last 1 to 4 calls`. Some can be missing in between."""
        kept = sorted({self.calls - copy[1] for copy in self.copies} - {0})
        if not kept:
            return "of no call before the last one"
        if kept == list(range(1, len(kept) + 1)):
            return "before its last %d calls" % len(kept)
        return "before its last %s calls" % ", ".join(map(str, kept))

    def _restore(self):
        """The kernel has died."""
        status = self._end_active()
        ending = {"signal": os.WTERMSIG(status)} if os.WIFSIGNALED(status) else {"exited": os.WEXITSTATUS(status)}
        # Without a copy of the last call, an older state would be taken for the one before this call.
        if not self.copies or self.copies[-1][1] != self.calls:
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
            self.copies = [copy for copy in self.copies if copy[0] != pid]

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

    def _limit_copies(self):
        """Drops the oldest copies of the sandbox while they hold too much memory, or take processes that others need."""
        self.check_at = None
        own = sum(_held(pid) for pid, _ in self.copies)
        # With less than its share of what 8 contexts may hold, none of them has more because of this one.
        if own <= self.limit // 8 and len(_processes()) <= self.processes:
            return
        copies = _droppable_copies()
        held = {pid: _held(pid) for pid in copies}
        memory = own + sum(held[pid] for pid in copies if pid not in {pid for pid, _ in self.copies})
        # With some room, so that not every further copy leads here.
        excess = len(_processes()) - self.processes * 3 // 4 if len(_processes()) > self.processes else 0
        for pid in copies:
            if memory <= self.limit and excess <= 0:
                break
            _kill(pid)
            self.copies = [copy for copy in self.copies if copy[0] != pid]
            memory -= held[pid]
            excess -= 1


def _droppable_copies():
    """Returns the copies of all contexts of the sandbox, oldest first, without the last one of each."""
    found = []
    last = {}
    for name in _processes():
        if _read("/proc/%s/oom_score_adj" % name).strip() != _FROZEN:
            continue
        context = _read("/proc/%s/cmdline" % name)
        fields = _read("/proc/%s/stat" % name).rpartition(")")[2].split()
        if "kernels/python/main.py\0" in context and len(fields) > 19 and fields[0] != "Z":
            copy = (int(fields[19]), int(name), context)
            found.append(copy)
            last[context] = max(last.get(context, copy), copy)
    return [pid for started, pid, context in sorted(found) if last[context][1] != pid]


def _processes():
    return [name for name in os.listdir("/proc") if name.isdigit()]


def _adopt_orphans():
    """Makes this process the parent of processes whose own has ended, so that it learns how the kernel ends."""
    import ctypes

    ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)  # PR_SET_CHILD_SUBREAPER


def _held(pid):
    """Memory that a copy holds, with its share of what several copies hold, in bytes."""
    for line in _read("/proc/%d/smaps_rollup" % pid).splitlines():
        if line.startswith("Pss_Anon:"):
            return int(line.split()[1]) * 1024
    return 0


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
