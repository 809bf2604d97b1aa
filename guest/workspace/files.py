"""Reads and writes files, and remembers what each reader has seen."""

import base64
import collections
import hashlib
import json
import os
import stat
import threading

WHOLE_MAX = 64 * 1024 * 1024
SHOWN_MAX = 256 * 1024
LINE_MAX = 16 * 1024
IMAGE_MAX = 5 * 1024 * 1024
READERS_MAX = 64
READ_FILES_MAX = 10_000

IMAGES = ((b"\x89PNG\r\n\x1a\n", "image/png"), (b"\xff\xd8\xff", "image/jpeg"), (b"GIF8", "image/gif"))
BINARIES = (
    (b"\x7fELF", "an ELF program or library"),
    (b"%PDF-", "a PDF document"),
    (b"PK\x03\x04", "a ZIP archive"),
    (b"\x1f\x8b", "gzip data"),
    (b"BZh", "bzip2 data"),
    (b"\xfd7zXZ", "xz data"),
    (b"\x28\xb5\x2f\xfd", "zstd data"),
    (b"SQLite format 3\0", "an SQLite database"),
    (b"\0asm", "a WebAssembly module"),
    (b"\xca\xfe\xba\xbe", "a Java class or Mach-O file"),
    (b"\xff\xfe", "text in UTF-16"),
    (b"\xfe\xff", "text in UTF-16"),
    (b"RIFF", "RIFF media"),
    (b"OggS", "Ogg media"),
    (b"ID3", "MP3 audio"),
)


class Seen:
    """What each reader has read: a file can be changed only as the reader knows it."""

    def __init__(self):
        self.readers = collections.OrderedDict()
        self.lock = threading.Lock()

    def note(self, reader, path, stamp):
        with self.lock:
            files = self.readers.setdefault(reader, collections.OrderedDict())
            self.readers.move_to_end(reader)
            files[path] = stamp
            files.move_to_end(path)
            if len(files) > READ_FILES_MAX:
                files.popitem(last=False)
            if len(self.readers) > READERS_MAX:
                self.readers.popitem(last=False)

    def get(self, reader, path):
        with self.lock:
            return self.readers.get(reader, {}).get(path)

    def forget(self, reader):
        with self.lock:
            self.readers.pop(reader, None)


def stamp_of(status, data):
    digest = None if data is None else hashlib.blake2b(data, digest_size=16).digest()
    return (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns, digest)


def is_same(stamp, status, data):
    """Whether a file is as it was: by its status, or by its content after a touch or chmod."""
    if stamp[:5] == (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns):
        return True
    return stamp[5] is not None and stamp[5] == stamp_of(status, data)[5]


def read_all(fd, size):
    chunks = []
    left = size + 1
    while left > 0:
        chunk = os.read(fd, min(left, 8 * 1024 * 1024))
        if not chunk:
            break
        chunks.append(chunk)
        left -= len(chunk)
    return b"".join(chunks)


class Files:
    def __init__(self, root):
        self.root = root
        self.seen = Seen()
        self.locks = collections.defaultdict(threading.Lock)

    def regular(self, path):
        """Opens a regular file. Returns (descriptor, relative path, status)."""
        fd, relative = self.root.open(path)
        status = os.fstat(fd)
        if stat.S_ISREG(status.st_mode):
            return fd, relative, status
        os.close(fd)
        if stat.S_ISDIR(status.st_mode):
            raise Refused(f"path is a directory: {path}. List it with Glob, or with ls through Bash.")
        raise Refused(f"path is {kind_of(status.st_mode)}: {path}. Only files can be read and written.")

    def load(self, path, what="edited"):
        fd, relative, status = self.regular(path)
        try:
            if status.st_size > WHOLE_MAX:
                raise Refused(
                    f"{path} has {status.st_size} bytes; files of more than {WHOLE_MAX} bytes cannot be {what}. "
                    "Use Bash, for example sed or head."
                )
            return relative, status, read_all(fd, status.st_size)
        except OSError as error:
            raise explain(error, path) from error
        finally:
            os.close(fd)

    def read(self, reader, file_path, offset=1, limit=2000):
        fd, relative, status = self.regular(file_path)
        try:
            if status.st_size > WHOLE_MAX:
                return self.read_large(fd, file_path, relative, reader, status, offset, limit)
            data = read_all(fd, status.st_size)
        finally:
            os.close(fd)
        self.seen.note(reader, relative, stamp_of(status, data))
        image = next((mime for magic, mime in IMAGES if data.startswith(magic)), None)
        if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
            image = "image/webp"
        if image:
            if len(data) > IMAGE_MAX:
                raise Refused(f"{file_path} is an image of {len(data)} bytes; at most {IMAGE_MAX} bytes can be shown.")
            return {"image": base64.b64encode(data).decode(), "mime": image}
        if relative.endswith(".ipynb"):
            cells = notebook_cells(data)
            if cells is not None:
                return numbered(cells.encode(), file_path, offset, limit)
        refuse_binary(data[:8192], file_path, len(data))
        return numbered(data, file_path, offset, limit)

    def read_large(self, fd, file_path, relative, reader, status, offset, limit):
        head = os.read(fd, 8192)
        refuse_binary(head, file_path, status.st_size)
        os.lseek(fd, 0, os.SEEK_SET)
        lines = []
        size = 0
        with os.fdopen(os.dup(fd), "rb", 1024 * 1024) as file:
            number = 0
            while len(lines) < limit and size < SHOWN_MAX:
                line = file.readline(LINE_MAX + 1)
                if not line:
                    break
                rest = line
                while rest and not rest.endswith(b"\n"):
                    rest = file.readline(1024 * 1024)
                number += 1
                if number >= offset:
                    lines.append(line)
                    size += len(line)
        if not lines:
            raise Refused(f"offset {offset} exceeds line count {number}")
        self.seen.note(reader, relative, stamp_of(status, None))
        text = b"".join(line if line.endswith(b"\n") else line + b"\n" for line in lines)
        shown = numbered(text, file_path, 1, limit, offset)
        return {"text": shown["text"] + f"(the file has {status.st_size} bytes; this is a part)\n"}

    def write(self, reader, file_path, content):
        data = content.encode("utf-8")
        if len(data) > WHOLE_MAX:
            raise Refused(f"content has {len(data)} bytes; at most {WHOLE_MAX} can be written at once.")
        with self.locks[file_path.split("/")[-1]]:
            directory, name, names = self.root.locate(file_path, create=True)
            relative = "/".join(names)
            try:
                if name is None:
                    raise Refused(f"path is a directory: {file_path}")
                known = self.seen.get(reader, relative)
                try:
                    status = os.stat(name, dir_fd=directory, follow_symlinks=False)
                except FileNotFoundError:
                    status = None
                if status is not None:
                    if not stat.S_ISREG(status.st_mode):
                        raise Refused(f"path is {kind_of(status.st_mode)}: {file_path}. Choose another path.")
                    if known is None:
                        raise Refused(f"refusing to overwrite {file_path}: Read it first")
                    self.require_same(known, file_path, status)
                self.replace(directory, name, data, status, file_path)
                status = os.stat(name, dir_fd=directory, follow_symlinks=False)
            except OSError as error:
                raise explain(error, file_path) from error
            finally:
                os.close(directory)
            self.seen.note(reader, relative, stamp_of(status, data))
        return {"bytes": len(data), "path": relative}

    def require_same(self, known, file_path, status):
        if known[:5] == stamp_of(status, None)[:5]:
            return
        data = self.load(file_path)[2] if known[5] is not None and status.st_size <= WHOLE_MAX else None
        if data is None or not is_same(known, status, data):
            raise Refused(f"refusing to write {file_path}: it has changed since it was read. Read it again.")

    def replace(self, directory, name, data, status, shown):
        """Writes a whole file in one step: readers see the old or the new content. Keeps mode and, if allowed, owner."""
        temporary = f".{name[:100]}.{os.getpid()}.{threading.get_ident()}.tmp"
        fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666, dir_fd=directory)
        try:
            view = memoryview(data)
            while view:
                view = view[os.write(fd, view) :]
            if status is None:
                # A link fails if someone created the file meanwhile; renaming would replace it.
                try:
                    os.link(temporary, name, src_dir_fd=directory, dst_dir_fd=directory, follow_symlinks=False)
                except FileExistsError:
                    raise Refused(f"refusing to overwrite {shown}: it was created meanwhile. Read it first") from None
                return
            if (status.st_uid, status.st_gid) != (os.geteuid(), os.getegid()):
                try:
                    os.fchown(fd, status.st_uid, status.st_gid)
                except OSError:
                    pass
            mode = stat.S_IMODE(status.st_mode)
            try:
                os.fchmod(fd, mode)
            except PermissionError:
                # The sandbox refuses set-user-ID bits, which the kernel would clear for a program that writes in place.
                os.fchmod(fd, mode & 0o1777)
            os.rename(temporary, name, src_dir_fd=directory, dst_dir_fd=directory)
            temporary = None
        finally:
            os.close(fd)
            if temporary is not None:
                try:
                    os.unlink(temporary, dir_fd=directory)
                except OSError:
                    pass


def refuse_binary(head, file_path, size):
    named = next((name for magic, name in BINARIES if head.startswith(magic)), None)
    if named or b"\0" in head:
        raise Refused(
            f"{file_path} is {named or 'a binary file'} of {size} bytes, not text. "
            "Use Bash with a program that understands it, for example xxd, unzip -l or python3."
        )


def notebook_cells(data):
    """Returns the cells of a Jupyter notebook as text, or None."""
    try:
        cells = json.loads(data)["cells"]
        parts = []
        for number, cell in enumerate(cells, 1):
            source = "".join(cell.get("source", []))
            outputs = []
            for output in cell.get("outputs", []):
                text = output.get("text") or output.get("data", {}).get("text/plain") or output.get("traceback") or []
                outputs.append("".join(text))
            parts.append(f"<cell {number} {cell.get('cell_type', '')}>\n{source}\n")
            if outputs:
                parts.append("<output>\n" + "\n".join(outputs)[:LINE_MAX] + "\n")
        return "".join(parts)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None


def numbered(data, file_path, offset, limit, first=None):
    """Returns lines with their numbers, and where to continue if there are more."""
    if not data:
        return {"text": "(the file is empty)\n"}
    position = 0
    for skipped in range(offset - 1):
        following = data.find(b"\n", position)
        if following == -1 or following + 1 == len(data):
            raise Refused(f"offset {offset} exceeds line count {skipped + 1}")
        position = following + 1
    number = offset if first is None else first
    uniform_crlf = data.count(b"\r\n") == data.count(b"\n") > 0
    out = []
    size = 0
    count = 0
    while position < len(data) and count < limit and size < SHOWN_MAX:
        end = data.find(b"\n", position)
        end = len(data) if end == -1 else end
        line = data[position:end]
        if uniform_crlf and line.endswith(b"\r"):
            line = line[:-1]
        text = line[:LINE_MAX].decode("utf-8", "replace")
        if number == 1 and text.startswith("\ufeff"):
            text = text[1:]
        if len(line) > LINE_MAX:
            text += f"… ({len(line) - LINE_MAX} more bytes in this line)"
        out.append(f"{number}\t{text}\n")
        size += len(out[-1])
        number += 1
        count += 1
        position = end + 1
    if position < len(data) and first is None:
        out.append(f"(more lines follow: continue with offset {number})\n")
    return {"text": "".join(out)}
