"""Unpacks one layer of an image into the root directory of this process.

The layer is untrusted input. The process has entered the image with chroot(2), so no name and no link of the layer leads out
of it. The format: https://github.com/opencontainers/image-spec/blob/main/layer.md
"""

import errno
import hashlib
import os
import shutil
import stat
import tarfile
import zlib
import encodings.idna  # noqa: F401  Codecs cannot be imported after chroot(2).
import encodings.utf_8  # noqa: F401

PIECE = 256 * 1024
ID_MAX = 65535
UNMAPPED = 65534
GZIP = b"\x1f\x8b"
WHITEOUT = ".wh."
OPAQUE = ".wh..wh..opq"


class Invalid(Exception):
    """The layer violates its format."""


class Layer:
    """A layer as the bytes of its archive, for tarfile: decompressed, hashed and limited in length."""

    def __init__(self, source, most):
        self.source = source
        self.left = most
        self.hash = hashlib.sha256()
        self.pending = b""
        self.feed = b""
        self.is_gzip = None
        self.inflate = None

    def read(self, size):
        while len(self.pending) < size:
            piece = self.next_piece(size - len(self.pending))
            if piece is None:
                break
            self.pending += piece
        taken, self.pending = self.pending[:size], self.pending[size:]
        return taken

    def next_piece(self, size):
        if self.is_gzip is None:
            self.feed = self.source.read(PIECE)
            self.is_gzip = self.feed.startswith(GZIP)
        if self.is_gzip:
            return self.decompress()
        raw, self.feed = self.feed or self.source.read(max(size, 512)), b""
        return self.count(raw) if raw else None

    def decompress(self):
        """Returns the next piece of what may be several gzip members, followed by zeros; None at the end."""
        while True:
            if len(self.feed) < 2:
                more = self.source.read(PIECE)
                self.feed += more
                if not more and not self.feed:
                    if self.inflate is not None and not self.inflate.eof:
                        raise Invalid("the compressed data ends early")
                    return None
            if self.inflate is None or self.inflate.eof:
                if not self.feed.startswith(GZIP):
                    if self.feed.strip(b"\0"):
                        raise Invalid("the compressed data is followed by other data")
                    self.feed = b""
                    continue
                self.inflate = zlib.decompressobj(31)
            data = self.inflate.decompress(self.feed, PIECE)
            self.feed = self.inflate.unused_data if self.inflate.eof else self.inflate.unconsumed_tail
            if data:
                return self.count(data)

    def count(self, data):
        self.left -= len(data)
        if self.left < 0:
            raise OSError(errno.ENOSPC, "the layer is larger than the image may be")
        self.hash.update(data)
        return data


def resolve(name):
    """Returns the components of a name in an archive. `..` cannot leave the root."""
    components = []
    for part in name.split("/"):
        if part == "..":
            del components[-1:]
        elif part not in ("", "."):
            components.append(part)
    return components


def remove(path):
    try:
        status = os.lstat(path)
    except FileNotFoundError:
        return
    if stat.S_ISDIR(status.st_mode):
        shutil.rmtree(path)
    else:
        os.unlink(path)


class Unpacking:
    """One layer that is applied to the root directory of this process."""

    def __init__(self):
        self.touched = set()
        self.directories = {}
        self.skipped = {"devices": 0, "xattrs": 0, "owners": 0}
        self.entries = 0

    def parent_of(self, components):
        """Returns the directory for an entry, which links of the image may lead to, and creates it if it is missing."""
        parent = os.path.realpath("/" + "/".join(components[:-1]))
        missing = []
        at = parent
        while not os.path.lexists(at):
            missing.append(at)
            at = os.path.dirname(at)
        if not os.path.isdir(at):
            raise Invalid("%s is below something that is not a directory" % ascii("/".join(components)))
        for path in reversed(missing):
            os.mkdir(path, 0o755)
            self.touch(path)
        return parent

    def touch(self, path):
        while path not in self.touched and path != "/":
            self.touched.add(path)
            path = os.path.dirname(path)

    def apply(self, archive, entry):
        self.entries += 1
        self.skipped["xattrs"] += sum(name.startswith("SCHILY.xattr.") for name in entry.pax_headers)
        components = resolve(entry.name)
        if not components:
            if entry.isdir():
                self.own(entry, "/")
            return
        parent = self.parent_of(components)
        name = components[-1]
        if name.startswith(WHITEOUT):
            self.hide(parent, name)
            return
        path = parent.rstrip("/") + "/" + name
        self.make_room(entry, path)
        if self.make(archive, entry, path):
            self.touch(path)
            if not entry.islnk():
                self.own(entry, path)

    def hide(self, parent, name):
        """Removes what a whiteout hides, whatever the type of its entry is. It hides nothing of its own layer."""
        if name == OPAQUE:
            self.empty(parent)
        elif not name.startswith(".wh..wh."):
            hidden = name[len(WHITEOUT) :]
            if hidden in ("", ".", ".."):
                raise Invalid("%s is not a whiteout" % ascii(name))
            path = parent.rstrip("/") + "/" + hidden
            if path not in self.touched:
                remove(path)
            elif os.path.isdir(path) and not os.path.islink(path):
                self.empty(path)

    def empty(self, directory):
        for name in os.listdir(directory):
            path = directory.rstrip("/") + "/" + name
            if path not in self.touched:
                remove(path)
            elif os.path.isdir(path) and not os.path.islink(path):
                self.empty(path)

    def make_room(self, entry, path):
        try:
            status = os.lstat(path)
        except FileNotFoundError:
            return
        if not (entry.isdir() and stat.S_ISDIR(status.st_mode)):
            self.directories.pop(path, None)
            remove(path)

    def make(self, archive, entry, path):
        if entry.ischr() or entry.isblk():
            self.skipped["devices"] += 1
            return False
        if entry.isdir():
            if not os.path.isdir(path):
                os.mkdir(path)
            self.directories[path] = entry.mtime
        elif entry.issym():
            os.symlink(entry.linkname, path)
        elif entry.islnk():
            self.link(entry, path)
        elif entry.isfifo():
            os.mkfifo(path)
        else:
            archive.makefile(entry, path)
        return True

    def link(self, entry, path):
        components = resolve(entry.linkname)
        parent = os.path.realpath("/" + "/".join(components[:-1]))
        try:
            os.link(parent.rstrip("/") + "/" + (components or [""])[-1], path, follow_symlinks=False)
        except FileNotFoundError:
            raise Invalid("%s is a hard link to a missing file" % ascii(entry.name)) from None

    def own(self, entry, path):
        uid, gid = entry.uid, entry.gid
        if not (0 <= uid <= ID_MAX and 0 <= gid <= ID_MAX):
            self.skipped["owners"] += 1
            uid, gid = (value if 0 <= value <= ID_MAX else UNMAPPED for value in (uid, gid))
        os.lchown(path, uid, gid)
        if not entry.issym():
            os.chmod(path, entry.mode & 0o7777)
        set_time(path, entry.mtime)

    def finish(self):
        for path, mtime in self.directories.items():
            if os.path.isdir(path):
                set_time(path, mtime)


def set_time(path, mtime):
    seconds = min(max(mtime, 0), 2**33)
    os.utime(path, (seconds, seconds), follow_symlinks=False)


def unpack(source, most):
    """Applies one layer. Runs in the child, which has entered the image. Returns the answer."""
    layer = Layer(source, most)
    unpacking = Unpacking()
    archive = tarfile.open(fileobj=layer, mode="r|", errorlevel=2, errors="surrogateescape", bufsize=64 * 1024)
    for entry in archive:
        archive.members = []
        if entry.size < 0:
            raise Invalid("an entry has a negative size")
        unpacking.apply(archive, entry)
    while layer.read(PIECE):
        pass
    unpacking.finish()
    return {"diff_id": "sha256:" + layer.hash.hexdigest(), "entries": unpacking.entries, **unpacking.skipped}


def problem_of(error):
    """Returns the answer for a layer that cannot be unpacked."""
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        return {"error": "full", "detail": error.strerror or ""}
    if isinstance(error, MemoryError):
        return {"error": "invalid", "detail": "a header of the layer is too large"}
    detail = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return {"error": "invalid", "detail": ascii(detail or type(error).__name__)[1:-1][:300]}
