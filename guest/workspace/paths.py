"""Paths of a workspace: resolved one component at a time, so that no link leads out of it, also while it is replaced."""

import errno
import os
import stat
import sys

LINKS_MAX = 40
OUTSIDE = "path is outside workspace root"


class Refused(Exception):
    """The caller can act on it; its text says how."""


def kind_of(mode):
    kinds = (
        (stat.S_ISREG, "a file"),
        (stat.S_ISDIR, "a directory"),
        (stat.S_ISLNK, "a symbolic link"),
        (stat.S_ISFIFO, "a named pipe (FIFO)"),
        (stat.S_ISSOCK, "a socket"),
        (stat.S_ISCHR, "a character device"),
        (stat.S_ISBLK, "a block device"),
    )
    return next((name for test, name in kinds if test(mode)), "not a file")


def explain(error, shown):
    """Returns the refusal for a failed system call on a path."""
    texts = {
        errno.ENOENT: "path not found: %s. Check it with Glob.",
        errno.ENOTDIR: "path not found: a part of %s is not a directory.",
        errno.EACCES: "permission denied: %s. Change its permissions with Bash (chmod) if it is yours.",
        errno.EPERM: "operation not permitted: %s",
        errno.EROFS: "the workspace is read-only: %s cannot be written.",
        errno.ENOSPC: "the disk of the workspace is full: %s was not written. Delete files and retry.",
        errno.EDQUOT: "the disk of the workspace is full: %s was not written. Delete files and retry.",
        errno.ENAMETOOLONG: "path is too long: %s",
        errno.EISDIR: "path is a directory: %s. List it with Glob.",
        errno.ELOOP: "too many symbolic links: %s",
        errno.ENXIO: "%s is a named pipe, socket or device, not a file.",
        errno.EFBIG: "%s would exceed the largest size of a file.",
        errno.ETXTBSY: "%s is being executed.",
    }
    text = texts.get(error.errno)
    if text is None:
        return error
    return Refused(text % (shown if len(shown) < 300 else shown[:300] + "…"))


class Root:
    """A workspace directory. Paths are relative to it, or absolute and below it."""

    def __init__(self, path):
        os.makedirs(path, exist_ok=True)
        self.path = os.path.realpath(path)
        self.aliases = tuple({self.path, os.path.abspath(path)})
        self.fd = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)

    def parts(self, path):
        """Splits a path. Raises Refused for one that is outside."""
        if "\0" in path:
            raise Refused("path contains a NUL character")
        path.encode("utf-8", "surrogateescape")
        if path.startswith("/"):
            inside = self.below(path)
            if inside is None:
                raise Refused(f"resolve path: {OUTSIDE}. The workspace is {self.path}; use a path below it.")
            path = inside
        return [part for part in path.split("/") if part not in ("", ".")]

    def below(self, path):
        for alias in self.aliases:
            if path == alias:
                return ""
            if path.startswith(alias.rstrip("/") + "/"):
                return path[len(alias.rstrip("/")) + 1 :]
        return None

    def locate(self, path, create=False):
        """Returns (descriptor of the directory, last name or None for the root itself, names). Close the descriptor."""
        pending = self.parts(path)[::-1]
        names = []
        current = os.dup(self.fd)
        links = 0
        try:
            while pending:
                part = pending.pop()
                if part == "..":
                    if not names:
                        raise Refused(f"resolve path: {OUTSIDE}. The workspace is {self.path}; use a path below it.")
                    names.pop()
                    os.close(current)
                    current = -1
                    current = self.reopen(names)
                    continue
                target = self.link(part, current)
                if target is not None:
                    links += 1
                    if links > LINKS_MAX:
                        raise OSError(errno.ELOOP, "")
                    if target.startswith("/"):
                        inside = self.below(target)
                        if inside is None:
                            raise Refused(f"resolve path: {OUTSIDE}: a symbolic link in {path!r} leads to another place.")
                        target = inside
                        names = []
                        os.close(current)
                        current = -1
                        current = os.dup(self.fd)
                    pending.extend(p for p in reversed(target.split("/")) if p not in ("", "."))
                    continue
                if not any(p not in ("", ".") for p in pending):
                    result = current, part, names + [part]
                    current = -1
                    return result
                following = self.step(part, current, create)
                os.close(current)
                current = following
                names.append(part)
            result = current, None, names
            current = -1
            return result
        except OSError as error:
            raise explain(error, path) from error
        finally:
            if current != -1:
                os.close(current)

    def link(self, part, directory):
        try:
            return os.readlink(part, dir_fd=directory)
        except OSError as error:
            if error.errno in (errno.EINVAL, errno.ENOENT):
                return None
            raise

    def step(self, part, directory, create):
        flags = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            return os.open(part, flags, dir_fd=directory)
        except FileNotFoundError:
            if not create:
                raise
            try:
                os.mkdir(part, 0o777, dir_fd=directory)
            except FileExistsError:
                pass
            return os.open(part, flags, dir_fd=directory)

    def reopen(self, names):
        current = os.dup(self.fd)
        for name in names:
            following = self.step(name, current, False)
            os.close(current)
            current = following
        return current

    def open(self, path, flags=os.O_RDONLY):
        """Opens a file or directory for reading. Returns (descriptor, path relative to the root)."""
        for attempt in range(8):
            directory, name, names = self.locate(path)
            try:
                fd = os.open(
                    "." if name is None else name,
                    flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY,
                    dir_fd=directory,
                )
                return fd, "/".join(names) or "."
            except OSError as error:
                # It became a link after it was looked at.
                if error.errno != errno.ELOOP or attempt == 7:
                    raise explain(error, path) from error
            finally:
                os.close(directory)

    def directory(self, path):
        """Returns the path of a directory, relative to the root, for programs that search it."""
        fd, relative = self.open(path)
        try:
            mode = os.fstat(fd).st_mode
        finally:
            os.close(fd)
        return relative, stat.S_ISDIR(mode)


def which(program):
    """Returns the path of an installed program, or None."""
    for directory in os.environ.get("PATH", "/usr/local/bin:/usr/bin:/bin").split(":"):
        full = os.path.join(directory, program)
        if os.access(full, os.X_OK) and os.path.isfile(full):
            return full
    return None


def need(program, how):
    path = which(program)
    if path is None:
        raise Refused(f"{program} is not installed in this sandbox. {how}")
    return path


PYTHON = sys.executable or "python3"
