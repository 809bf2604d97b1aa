"""
Serves one file, `disk`, as a disk with a volatile write cache: what was written is stored only by fsync(2).
Arguments: the directory to mount it at, the file in which it is stored. Speaks the protocol of the kernel:
https://www.kernel.org/doc/html/latest/filesystems/fuse/fuse.html and include/uapi/linux/fuse.h
Ends when it is unmounted. SIGUSR1 cuts its power: what is in the cache is dropped, and writes have no effect.
"""
import ctypes
import errno
import os
import signal
import struct
import sys

mount_point, stored = sys.argv[1:]
BLOCK = 4096
size = os.stat(stored).st_size
image = os.open(stored, os.O_RDWR)
cache = {}
has_power = True


def cut_power(*_):
    global has_power
    has_power = False
    cache.clear()


signal.signal(signal.SIGUSR1, cut_power)
device = os.open("/dev/fuse", os.O_RDWR)
options = f"fd={device},rootmode=40000,user_id=0,group_id=0,allow_other,max_read=131072".encode()
libc = ctypes.CDLL(None, use_errno=True)
if libc.mount(b"volatile-disk", mount_point.encode(), b"fuse", 0, options) != 0:
    sys.exit(f"mount: {os.strerror(ctypes.get_errno())}")


def attributes(node):
    mode, length = (0o40755, 0) if node == 1 else (0o100600, size)
    return struct.pack("<6Q10I", node, length, (length + 511) // 512, 0, 0, 0, 0, 0, 0, mode, 1, 0, 0, 0, BLOCK, 0)


def read(offset, length):
    data = bytearray(os.pread(image, length, offset).ljust(length, b"\0"))
    for block in range(offset // BLOCK, (offset + length - 1) // BLOCK + 1):
        kept = cache.get(block)
        if kept is None:
            continue
        start, end = max(block * BLOCK, offset), min((block + 1) * BLOCK, offset + length)
        data[start - offset : end - offset] = kept[start - block * BLOCK : end - block * BLOCK]
    return bytes(data[: max(0, size - offset)])


def write(offset, data):
    if not has_power:
        return
    end = offset + len(data)
    for block in range(offset // BLOCK, (end - 1) // BLOCK + 1):
        kept = cache.get(block)
        if kept is None:
            kept = cache[block] = bytearray(os.pread(image, BLOCK, block * BLOCK).ljust(BLOCK, b"\0"))
        start, stop = max(block * BLOCK, offset), min((block + 1) * BLOCK, end)
        kept[start - block * BLOCK : stop - block * BLOCK] = data[start - offset : stop - offset]


def sync():
    for block, kept in cache.items():
        os.pwrite(image, kept, block * BLOCK)
    cache.clear()


def answer(op, node, body):
    """Returns the body of the response, or None if the request has none."""
    if op == 26:  # INIT
        major, minor, readahead, _ = struct.unpack_from("<4I", body)
        # Large writes, and none of the optional features.
        return struct.pack("<4I2H2I2H8I", 7, min(minor, 31), readahead, 1 << 5, 12, 9, 131072, 1, 32, 0, *[0] * 8)[:64]
    if op == 1:  # LOOKUP
        if node != 1 or body.split(b"\0")[0] != b"disk":
            raise OSError(errno.ENOENT, "")
        return struct.pack("<4Q2I", 2, 0, 60, 60, 0, 0) + attributes(2)
    if op == 3 or op == 4:  # GETATTR, SETATTR
        return struct.pack("<Q2I", 60, 0, 0) + attributes(node)
    if op == 14 or op == 27:  # OPEN, OPENDIR
        return struct.pack("<Q2I", 0, 0, 0)
    if op == 15:  # READ
        _, offset, length = struct.unpack_from("<2QI", body)
        return read(offset, length)
    if op == 16:  # WRITE
        _, offset, length = struct.unpack_from("<2QI", body)
        write(offset, body[40 : 40 + length])
        return struct.pack("<2I", length, 0)
    if op == 20:  # FSYNC
        sync()
        return b""
    if op == 17:  # STATFS
        return struct.pack("<5Q4I24s", 0, 0, 0, 1, 1, BLOCK, 255, BLOCK, 0, b"")
    if op in (18, 25, 29):  # RELEASE, FLUSH, RELEASEDIR
        return b""
    if op in (2, 36, 42):  # INTERRUPT, and FORGET with BATCH_FORGET have no response.
        return None
    raise OSError(errno.ENOSYS, "")


print("ready", flush=True)
while True:
    try:
        request = os.read(device, 1 << 20)
    except OSError as error:
        if error.errno == errno.ENODEV:
            break
        if error.errno in (errno.EINTR, errno.ENOENT):
            continue
        raise
    length, op, unique, node = struct.unpack_from("<2I2Q", request)
    try:
        body = answer(op, node, request[40:length])
        code = 0
    except OSError as error:
        body, code = b"", -error.errno
    if op == 38 or body is None:  # DESTROY
        continue
    os.write(device, struct.pack("<IiQ", 16 + len(body), code, unique) + body)
