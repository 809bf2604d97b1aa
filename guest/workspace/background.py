"""Commands in the background, with the end of their output and the events that were requested."""

import os
import subprocess
import threading
import time
import uuid


class Shell:
    """A command in the background with the end of its output."""

    def __init__(self, shells, state, command, watch, idle_timeout):
        self.id = str(uuid.uuid4())
        self.command = command
        self.watch = watch
        self.started = time.time()
        self.lock = threading.Lock()
        self.streams = {"stdout": Tail(KEPT_MAX), "stderr": Tail(KEPT_MAX)}
        self.events = []
        self.events_dropped = 0
        self.last_event = 0
        self.last_output = time.monotonic()
        script = 'eval "$1"; __gb=$2; set --; eval "$__gb"'
        self.process = subprocess.Popen(
            [shells.bash_path(), "--noprofile", "--norc", "-c", script, "bash", state, command],
            cwd=shells.root.path, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            start_new_session=True,
        )
        self.matcher = None
        if watch:
            self.matcher = LineMatcher(watch, lambda line: self.event("error", line=line))
        if watch is not None:
            self.event("started", command=command[:1000])
        self.readers = [threading.Thread(target=self.read, args=(name,), daemon=True) for name in self.streams]
        for reader in self.readers:
            reader.start()
        threading.Thread(target=self.follow, args=(idle_timeout,), daemon=True).start()

    def read(self, name):
        pipe = getattr(self.process, name)
        while True:
            chunk = os.read(pipe.fileno(), 1 << 16)
            if not chunk:
                break
            with self.lock:
                self.streams[name].add(chunk)
                self.last_output = time.monotonic()
            if self.matcher is not None:
                self.matcher.feed(chunk)
        pipe.close()

    def follow(self, idle_timeout):
        reported = None
        while self.process.poll() is None:
            try:
                self.process.wait(0.5 if idle_timeout else None)
            except subprocess.TimeoutExpired:
                pass
            last = self.last_output
            if idle_timeout and self.process.poll() is None and time.monotonic() - last > idle_timeout and reported != last:
                reported = last
                self.event("idle_timeout", seconds=idle_timeout)
        for reader in self.readers:
            reader.join(1)
        if self.matcher is not None:
            self.matcher.close()
        if self.watch is not None:
            self.event("exited", exit=exit_code(self.process))

    def event(self, kind, **fields):
        with self.lock:
            self.last_event += 1
            self.events.append({"id": self.last_event, "kind": kind, "time": time.time(), **fields})
            if len(self.events) > EVENTS_MAX:
                del self.events[: EVENTS_MAX // 10]
                self.events_dropped += EVENTS_MAX // 10

    def output(self, cursors, filter):
        code = self.process.poll()
        if code is not None:
            for reader in self.readers:
                reader.join(1)
        with self.lock:
            streams = []
            for (name, tail), cursor in zip(self.streams.items(), cursors):
                start = max(0, min(cursor, tail.total) - tail.dropped)
                lost = max(0, tail.dropped - cursor)
                data = bytes(tail.data[start:])
                # The beginning of a character whose rest has not arrived.
                whole = data if code is not None else data[: len(data) - cut_character(data)]
                streams.append({"text": whole, "cursor": tail.total - (len(data) - len(whole)), "lost": lost, "bytes": tail.total})
        for stream in streams:
            data = stream["text"]
            if filter and data:
                data = matching_lines(filter, data)
            stream["text"] = data.decode("utf-8", "replace")
        return {
            "command": self.command, "started": self.started, "streams": streams,
            "exit": None if code is None else exit_code(self.process),
        }


def cut_character(data):
    for back in range(1, min(4, len(data)) + 1):
        byte = data[-back]
        if byte >= 0xC0:
            return back if back < (2 if byte < 0xE0 else 3 if byte < 0xF0 else 4) else 0
        if byte < 0x80:
            return 0
    return 0


def line_filter(patterns):
    """Returns a command that prints matching lines in linear time."""
    arguments = [argument for pattern in patterns for argument in ("-e", pattern)]
    rg = which("rg")
    if rg:
        return [rg, "--no-config", "--no-filename", "--no-line-number", "--color=never", "--line-buffered", "--text", *arguments, "-"]
    return [need("grep", "Install ripgrep or grep."), "-aE", "--line-buffered", *arguments]


def matching_lines(pattern, data):
    try:
        found = subprocess.run(line_filter([pattern]), input=data, capture_output=True, timeout=10)
    except subprocess.TimeoutExpired:
        raise Refused("filter took longer than 10 seconds. Use a simpler pattern.") from None
    if found.returncode == 2:
        raise Refused("filter is not a valid pattern: " + found.stderr.decode("utf-8", "replace").strip()[-300:])
    return found.stdout


class LineMatcher:
    """Reports lines that match a pattern, found by another program, which cannot block this one."""

    def __init__(self, patterns, report):
        command = line_filter(patterns)
        probe = subprocess.run(command, input=b"", capture_output=True, timeout=10)
        if probe.returncode == 2:
            raise Refused("error_patterns are not valid: " + probe.stderr.decode("utf-8", "replace").strip()[-300:])
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        self.lock = threading.Lock()
        self.thread = threading.Thread(target=self.read, args=(report,), daemon=True)
        self.thread.start()

    def read(self, report):
        for line in self.process.stdout:
            report(line[:2000].decode("utf-8", "replace").rstrip("\n"))

    def feed(self, chunk):
        with self.lock:
            try:
                self.process.stdin.write(chunk)
                self.process.stdin.flush()
            except (OSError, ValueError):
                pass

    def close(self):
        with self.lock:
            try:
                self.process.stdin.close()
            except OSError:
                pass
        self.thread.join(2)
        self.process.kill()
        self.process.wait()
