"""Frozen copies of the Python kernel, so that it can be put back into the state before its last calls.

After each call the kernel forks a copy, which shares its memory until one of them writes, and waits for a signal. A keeper,
the process that core has started, knows the copies. It replaces the kernel by a copy when core requests it, and when the
kernel has died. The copies are no children of the kernel, where the code would wait for them.
"""

import json
import os
import signal
import sys

_THAW = signal.SIGUSR2
_BLOCKED = {signal.SIGINT, _THAW}
_FROZEN = "900"  # oom_score_adj of copies, by which keepers recognize those of other contexts, see keeper.py


def start(load, channel, count):
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
    load("keeper").Keeper(orders[0], answers[1], pid, count).run()


class Copies:
    """The kernel's side: makes copies and talks to the keeper."""

    def __init__(self, channel, orders, answers):
        self.channel = channel
        self.orders = orders
        self.answers = answers
        self.middle = None
        self.is_adopted = False

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
        if not self.is_adopted:
            # Copies that are made before the keeper adopts orphans would not become its children.
            self._answer()
            self.is_adopted = True
        generator = sys.modules.get("random")
        seed = generator.getstate() if generator else None
        signal.pthread_sigmask(signal.SIG_BLOCK, _BLOCKED)
        self._reap()
        try:
            self.middle = os.fork()
        except OSError:
            # No process or memory is left: this state cannot be returned to.
            self._tell("ended", kernel.count)
        if self.middle != 0:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, _BLOCKED)
            return
        try:
            copy = os.fork()
            if copy:
                # The keeper knows the copy before the kernel continues with what waits for this process.
                self._tell("frozen", copy, kernel.count)
                os._exit(0)
        except OSError:
            self._tell("ended", kernel.count)
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
        _write("/proc/self/oom_score_adj", _FROZEN)
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
