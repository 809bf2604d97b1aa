"""The first process of a builder: fills the filesystem of an image from layers or packages.

It runs in a container of its own with mapped user IDs. Standard input is a sequence of frames: one byte for the kind, four
for the length, then the payload. `J` is a request in JSON, `D` is a piece of a layer, `E` ends a layer. Answers are lines of
JSON on standard output. A layer is unpacked by a child that has the image as its root directory; see `layer.py`.
"""

import json
import os
import shutil
import signal
import struct
import subprocess
import sys

sys.path.insert(0, os.path.dirname(__file__))
import layer  # noqa: E402

TARGET = "/dock/image"
PIECE = 256 * 1024
ZSTD = b"\x28\xb5\x2f\xfd"


def answer(**fields):
    sys.stdout.write(json.dumps(fields) + "\n")
    sys.stdout.flush()


def read_exactly(size):
    pieces = []
    while size > 0:
        piece = os.read(0, min(size, PIECE))
        if not piece:
            raise EOFError("the host closed the channel")
        pieces.append(piece)
        size -= len(piece)
    return b"".join(pieces)


def read_frame():
    kind, size = struct.unpack(">cI", read_exactly(5))
    if size > 1024 * 1024:
        raise EOFError("a frame is too large")
    return kind, read_exactly(size)


def in_child(source, most, result):
    try:
        os.chroot(TARGET)
        os.chdir("/")
        os.umask(0)
        said = layer.unpack(source, most)
    except Exception as error:  # A layer can make tarfile raise anything.
        said = layer.problem_of(error)
    os.write(result, json.dumps(said).encode())
    os._exit(0)


def pump(first, sink):
    """Passes the pieces of a layer on until its end. Returns whether all were taken."""
    kind, piece = first
    is_taken = True
    while kind == b"D":
        if is_taken:
            try:
                sink.write(piece)
            except BrokenPipeError:
                is_taken = False
        kind, piece = read_frame()
    try:
        sink.close()
    except BrokenPipeError:
        is_taken = False
    return is_taken


def layer_request(request):
    first = read_frame()
    result, result_end = os.pipe()
    decompressor = None
    if first[1][:4] == ZSTD:
        if shutil.which("zstd") is None:
            return {"error": "zstd_missing", "detail": ""}
        decompressor = subprocess.Popen(["zstd", "-dcq"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        source, sink = decompressor.stdout, decompressor.stdin
    else:
        source_end, sink_end = os.pipe()
        source, sink = os.fdopen(source_end, "rb"), os.fdopen(sink_end, "wb")
    child = os.fork()
    if child == 0:
        os.close(result)
        sink.close()
        in_child(source, request["most"], result_end)
    os.close(result_end)
    source.close()
    pump(first, sink)
    said = b"".join(iter(lambda: os.read(result, PIECE), b""))
    os.close(result)
    os.waitpid(child, 0)
    if decompressor is not None and decompressor.wait() != 0 and b'"error"' not in said:
        return {"error": "invalid", "detail": "the compressed data is damaged"}
    return json.loads(said) if said else {"error": "invalid", "detail": "unpacking the layer needed too much memory"}


def packages_request(request):
    """Installs the packages that lie in /debs. Their scripts run as root of this container only."""
    script = subprocess.Popen(
        ["/bin/sh", "/builder/install-packages.sh", TARGET, *request["first"]],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    )
    tail = []
    for line in script.stdout:
        if line.startswith("progress: "):
            answer(progress=line[len("progress: ") :].strip()[:200])
        tail = [*tail[-20:], line]
    if script.wait() != 0:
        return {"error": "failed", "detail": "".join(tail)[-2000:]}
    return {"done": True}


def finish_request(_request):
    os.chown(TARGET, 0, 0)
    os.chmod(TARGET, 0o755)
    return {"done": True}


REQUESTS = {"layer": layer_request, "packages": packages_request, "finish": finish_request}


def main():
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    answer(ready=True)
    while True:
        try:
            _kind, payload = read_frame()
        except EOFError:
            return
        request = json.loads(payload)
        answer(**REQUESTS[request["do"]](request))


main()
