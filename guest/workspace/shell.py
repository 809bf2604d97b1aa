"""Runs commands with Bash, in the foreground with a kept directory and environment, or in the background."""

import os
import select
import signal
import subprocess
import threading
import time

OUTPUT_MAX = 100 * 1024
KEPT_MAX = 1024 * 1024
STATE_MAX = 96 * 1024
SHELLS_MAX = 32
EVENTS_MAX = 1024
PATTERNS = ("^Error:", "^Fatal:", "^panic:", r"\buncaught\b", "UnhandledPromiseRejection")

# Restores directory and exported variables, runs the command, and saves them when the shell exits.
FOREGROUND = r"""
eval "$1"; __gb=$2; set --
trap '__gbx=$?; { builtin printf "cd -- %q 2>/dev/null\n" "$(builtin pwd)"; builtin export -p; } >&9 2>/dev/null; exit $__gbx' EXIT
eval "$__gb" 9>&-
"""


class Tail:
    """The end of a stream, with the number of bytes that came before it."""

    def __init__(self, limit):
        self.limit = limit
        self.data = bytearray()
        self.dropped = 0

    def add(self, chunk):
        self.data += chunk
        over = len(self.data) - self.limit
        if over > 0:
            del self.data[:over]
            self.dropped += over

    @property
    def total(self):
        return self.dropped + len(self.data)


class HeadAndTail:
    """The start and the end of an output."""

    def __init__(self, limit):
        self.head = bytearray()
        self.limit = limit // 2
        self.tail = Tail(limit - limit // 2)

    def add(self, chunk):
        room = self.limit - len(self.head)
        if room > 0:
            self.head += chunk[:room]
            chunk = chunk[room:]
        if chunk:
            self.tail.add(chunk)

    def text(self):
        text = self.head.decode("utf-8", "replace")
        if self.tail.dropped:
            text += f"\n... (output truncated, {self.tail.dropped} bytes elided)\n"
        return text + self.tail.data.decode("utf-8", "replace")


def kill_group(process, number=signal.SIGKILL):
    try:
        os.killpg(process.pid, number)
    except (ProcessLookupError, PermissionError):
        pass


class Shells:
    def __init__(self, root):
        self.root = root
        self.states = {}
        self.background = {}
        self.lock = threading.Lock()

    def bash_path(self):
        return which("bash") or need("bash", "Use an image that has Bash.")

    def run(self, reader, command, timeout):
        state, turn = self.state_of(reader)
        with turn:
            memory = os.memfd_create("state")
            try:
                os.dup2(memory, memory, inheritable=True)
                process = subprocess.Popen(
                    [self.bash_path(), "--noprofile", "--norc", "-c", f"exec 9>&{memory} {memory}>&-\n{FOREGROUND}", "bash", state[0], command],
                    cwd=self.root.path, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                    start_new_session=True, pass_fds=(memory,),
                )
                in_call(process)
                output = HeadAndTail(OUTPUT_MAX)
                timed_out = wait_reading(process, output, timeout)
                saved = os.pread(memory, STATE_MAX + 1, 0).decode("utf-8", "surrogateescape")
            except OSError as error:
                raise explain(error, "bash") from error
            finally:
                os.close(memory)
            note = ""
            if saved and not timed_out:
                if len(saved) <= STATE_MAX:
                    state[0] = without_own(saved)
                else:
                    note = "(the environment is larger than 96 KiB and was not kept)\n"
        code = 124 if timed_out else exit_code(process)
        return {"text": output.text(), "exit": code, "timed_out": timed_out, "note": note}

    def state_of(self, reader):
        with self.lock:
            if reader not in self.states and len(self.states) >= READERS_MAX:
                self.states.pop(next(iter(self.states)))
            entry = self.states.setdefault(reader, ([""], threading.Lock()))
            return entry

    def start(self, reader, command, watch=None, idle_timeout=0):
        with self.lock:
            running = sum(1 for shell in self.background.values() if shell.process.poll() is None)
            if running >= SHELLS_MAX:
                raise Refused(f"{SHELLS_MAX} background shells are running. Stop one with KillShell first.")
            ended = [key for key, shell in self.background.items() if shell.process.poll() is not None]
            for key in ended[: max(0, len(self.background) - 2 * SHELLS_MAX)]:
                del self.background[key]
        state, _ = self.state_of(reader)
        shell = Shell(self, state[0], command, watch, idle_timeout)
        with self.lock:
            self.background[shell.id] = shell
        return {"shell_id": shell.id}

    def find(self, shell_id):
        shell = self.background.get(shell_id)
        if shell is None:
            raise Refused(f"unknown shell_id: {shell_id[:100]}")
        return shell

    def output(self, shell_id, cursors=(0, 0), filter=None):
        return self.find(shell_id).output(cursors, filter)

    def kill(self, shell_id):
        shell = self.find(shell_id)
        kill_group(shell.process)
        shell.process.wait()
        with self.lock:
            self.background.pop(shell_id, None)
        return {"killed": shell_id}

    def events(self, shell_id, since_event_id=0):
        shell = self.find(shell_id)
        if shell.watch is None:
            raise Refused(f"shell {shell_id} was not started with watch_process")
        with shell.lock:
            return {"events": [event for event in shell.events if event["id"] > since_event_id], "dropped": shell.events_dropped}

    def kill_all(self):
        for shell in list(self.background.values()):
            kill_group(shell.process)


THIS_CALL = threading.local()
CALLS = {}


def in_call(process):
    """Lets the cancellation of the current call kill a process."""
    CALLS[getattr(THIS_CALL, "id", 0)] = process


def cancel_call(number):
    process = CALLS.get(number)
    if process is not None and process.poll() is None:
        kill_group(process)


def exit_code(process):
    return process.returncode if process.returncode >= 0 else 128 - process.returncode


def without_own(saved):
    return "\n".join(line for line in saved.split("\n") if not line.startswith(("declare -x SHLVL=", "declare -x OLDPWD")))


def wait_reading(process, output, timeout):
    """Reads until the process has exited; what it left in the background keeps no call open. Returns whether it was killed."""
    pipe = process.stdout.fileno()
    poll = select.poll()
    poll.register(pipe, select.POLLIN)
    try:
        ended = os.pidfd_open(process.pid)
        poll.register(ended, select.POLLIN)
    except (AttributeError, OSError):
        ended = None
    deadline = time.monotonic() + timeout
    silent_after = None
    timed_out = False
    is_open = True
    try:
        while is_open or process.returncode is None:
            if process.returncode is None and process.poll() is not None:
                # A process in the background may still have the pipe.
                silent_after = time.monotonic() + 0.1
                if ended is not None:
                    poll.unregister(ended)
            now = time.monotonic()
            if process.returncode is None and now > deadline:
                timed_out = True
                kill_group(process)
                process.wait()
                silent_after = now + 0.1
                if ended is not None:
                    poll.unregister(ended)
            if silent_after is not None and (not is_open or now > silent_after):
                break
            until = deadline if silent_after is None else silent_after
            left = max(0.0, until - now) * 1000 + 1
            for fd, _ in poll.poll(left if ended is not None else min(left, 20)):
                if fd == pipe:
                    chunk = os.read(pipe, 1 << 16)
                    output.add(chunk)
                    if not chunk:
                        is_open = False
                        poll.unregister(pipe)
    finally:
        if ended is not None:
            os.close(ended)
        process.stdout.close()
    return timed_out
