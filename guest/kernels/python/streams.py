"""Descriptors of the Python kernel: the channel, standard input and the output streams."""

import fcntl
import io
import json
import os
import sys

_FIRST_PRIVATE = 100  # descriptors of the kernel start here, away from those that code uses


def _private(descriptor):
    return fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, _FIRST_PRIVATE)


class Channel:
    """Frames on descriptor 3, and the marks on the output streams."""

    def __init__(self):
        self.descriptor = _private(3)
        os.close(3)
        self.outputs = (_private(1), _private(2))
        self.buffer = b""
        self._held = b""

    def send(self, kind, nonce, payload=b""):
        self._write(self.descriptor, self._held + _frame(kind, nonce, payload))
        self._held = b""

    def send_json(self, kind, nonce, value):
        self.send(kind, nonce, json.dumps(value).encode())

    def hold_json(self, kind, nonce, value):
        """Sends a frame with the next one, in one write."""
        self._held += _frame(kind, nonce, json.dumps(value).encode())

    def mark(self, nonce):
        for descriptor in self.outputs:
            self._write(descriptor, b"\x1e%s\x1e" % nonce.encode())

    def receive(self):
        """Returns the next frame, or None at the end."""
        while b"\n" not in self.buffer:
            if not self._fill():
                return None
        line, self.buffer = self.buffer.split(b"\n", 1)
        kind, nonce, length = line.decode("ascii").split(" ")
        parts = [self.buffer]
        missing = int(length) - len(self.buffer)
        while missing > 0:
            part = os.read(self.descriptor, min(missing, 1 << 20))
            if not part:
                return None
            parts.append(part)
            missing -= len(part)
        whole = b"".join(parts)
        self.buffer = whole[int(length) :]
        return kind, nonce, whole[: int(length)]

    def _fill(self):
        part = os.read(self.descriptor, 1 << 16)
        self.buffer += part
        return bool(part)

    @staticmethod
    def _write(descriptor, data):
        rest = memoryview(data)
        while rest:
            try:
                rest = rest[os.write(descriptor, rest) :]
            except BlockingIOError:
                # The code has made the stream non-blocking.
                os.set_blocking(descriptor, True)


def _frame(kind, nonce, payload):
    return b"%s %s %d\n%s" % (kind.encode(), nonce.encode(), len(payload), payload)


class Input:
    """Standard input: empty, or what a call brings."""

    def __init__(self):
        self.is_given = True
        self.set(None)

    def set(self, data):
        if data is None and not self.is_given:
            return
        self.is_given = data is not None
        source = os.open(os.devnull, os.O_RDONLY) if data is None else self._file(data)
        os.dup2(source, 0)
        if source != 0:
            os.close(source)
        sys.stdin = sys.__stdin__ = io.TextIOWrapper(
            io.BufferedReader(io.FileIO(0, "r", closefd=False)), encoding="utf-8", errors="surrogateescape"
        )
        # FileIO names its descriptor; the standard stream has a name that programs print.
        sys.stdin.mode = "r"

    @staticmethod
    def _file(data):
        try:
            descriptor = os.memfd_create("stdin")
        except (AttributeError, OSError):
            import tempfile

            with tempfile.TemporaryFile() as file:
                descriptor = os.dup(file.fileno())
        rest = memoryview(data)
        while rest:
            rest = rest[os.write(descriptor, rest) :]
        os.lseek(descriptor, 0, os.SEEK_SET)
        return descriptor


def output(descriptor):
    # A line is written when it is complete, also where the environment asks for unbuffered streams, which would make a
    # system call for each argument of print.
    raw = io.BufferedWriter(io.FileIO(descriptor, "w", closefd=False))
    errors = "surrogateescape" if descriptor == 1 else "backslashreplace"
    return io.TextIOWrapper(raw, encoding="utf-8", errors=errors, line_buffering=True)
