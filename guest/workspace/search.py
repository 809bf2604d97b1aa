"""Finds files by name and lines by pattern: with ripgrep, or with slower code of its own."""

import fnmatch
import os
import re
import subprocess
import threading
import time

RESULT_MAX = 256 * 1024
SEARCH_SECONDS = 20
COLUMNS_MAX = 1000
FILES_MAX = 200_000
HIDDEN = (".git", ".glovebox")
OUTPUT_MODES = ("content", "files_with_matches", "count")


class Search:
    def __init__(self, root):
        self.root = root

    def rg(self):
        return which("rg")

    def base(self, path):
        """Returns the path to search, relative to the root and fixed by a descriptor, and whether it is a directory."""
        return self.root.directory(path or ".")

    def glob(self, pattern, path=None, limit=100):
        if pattern.startswith("!"):
            raise Refused("pattern must not start with !: it names the files to find")
        base, is_directory = self.base(path)
        if not is_directory:
            raise Refused(f"path is not a directory: {path}")
        if pattern.startswith("/"):
            inside = self.root.below(pattern)
            if inside is None:
                raise Refused(f"resolve path: {OUTSIDE}. The workspace is {self.root.path}; use a relative pattern.")
            pattern = inside
        found, partial = self.names(base, pattern)
        times = []
        for name in found:
            try:
                times.append((-os.stat(name, dir_fd=self.root.fd, follow_symlinks=False).st_mtime_ns, name))
            except OSError:
                continue
        times.sort()
        return {"files": [name for _, name in times[:limit]], "total": len(times), "partial": partial}

    def names(self, base, pattern=None):
        """Returns paths of files, and whether the search was cut short."""
        rg = self.rg()
        if rg is None:
            return self.walk(base, pattern)
        command = [rg, "--files", "--null", "--hidden", "--no-require-git", "--no-messages", "--no-config"]
        for name in HIDDEN:
            command += ["--glob", "!" + name]
        if pattern is not None:
            command[1:1] = ["--glob", pattern]
        text, code, partial, errors = self.run(command + ["--", target(base)], 32 * 1024 * 1024)
        if code == 2 and not text and errors:
            raise Refused(f"pattern is not valid: {errors.strip()[:300]}")
        return [os.path.normpath(name) for name in text.decode("utf-8", "replace").split("\0") if name][:FILES_MAX], partial

    def walk(self, base, pattern):
        """As `names`, without ripgrep; leaves out what git ignores if there is git."""
        matches = None if pattern is None else glob_matcher(pattern)
        listed = self.listed_by_git(base)
        found = []
        if listed is None:
            listed = (
                os.path.normpath(os.path.join(where, name))
                for where, directories, names in self.walk_directories(base)
                for name in names
            )
        for name in listed:
            if matches is None or matches(os.path.relpath(name, base)):
                found.append(name)
            if len(found) >= FILES_MAX:
                return found, True
        return found, False

    def walk_directories(self, base):
        for where, directories, names in os.walk(os.path.join(self.root.path, base)):
            directories[:] = [each for each in directories if each not in HIDDEN]
            yield os.path.relpath(where, self.root.path), directories, names

    def listed_by_git(self, base):
        git = which("git")
        if git is None or not os.path.isdir(os.path.join(self.root.path, ".git")):
            return None
        command = [git, "ls-files", "-z", "--cached", "--others", "--exclude-standard", "--", base]
        text, code, _, _ = self.run(command, 32 * 1024 * 1024)
        return None if code != 0 else [name for name in text.decode("utf-8", "replace").split("\0") if name]

    def grep(self, pattern, path=None, glob=None, type=None, case_insensitive=False, output_mode="content",
             head_limit=0, offset=0, before=0, after=0, multiline=False):
        if output_mode not in OUTPUT_MODES:
            raise Refused(f"unknown output_mode: {output_mode[:64]} (valid: {', '.join(OUTPUT_MODES)})")
        base, _ = self.base(path)
        rg = self.rg()
        if rg is None:
            return self.grep_slowly(pattern, base, glob, case_insensitive, output_mode, head_limit)
        command = [rg, "--no-config", "--hidden", "--no-require-git", "--no-messages", "--color=never",
                   "--max-columns", str(COLUMNS_MAX), "--max-columns-preview", "--regex-size-limit=10M"]
        for name in HIDDEN:
            command += ["--glob", "!" + name]
        if glob:
            command += ["--glob", glob]
        if type:
            command += ["--type", type]
        if case_insensitive:
            command.append("--ignore-case")
        if multiline:
            command += ["--multiline", "--multiline-dotall"]
        if output_mode == "files_with_matches":
            command.append("--files-with-matches")
        elif output_mode == "count":
            command += ["--null", "--count", "--with-filename"]
        else:
            command += ["--null", "--line-number", "--with-filename", "--no-heading", "-B", str(before), "-A", str(after)]
        command += ["-e", pattern, "--", target(base)]
        lines_max = head_limit + offset if head_limit else 0
        # ripgrep uses one thread if it sorts, so a complete result without context is sorted here.
        is_sorted_here = not lines_max and not before and not after
        started = time.monotonic()
        if is_sorted_here:
            text, code, partial, errors = self.run(command, RESULT_MAX)
        # Which part of a large result is shown does not depend on the threads.
        if not is_sorted_here or (partial and time.monotonic() - started < SEARCH_SECONDS / 2):
            text, code, partial, errors = self.run(command[:1] + ["--sort=path"] + command[1:], RESULT_MAX, lines_max)
        if code == 2 and not text:
            raise Refused(invalid_search(errors.strip()))
        lines = shown_lines(text, is_sorted_here)
        lines = lines[offset : offset + head_limit if head_limit else None]
        return {"lines": lines, "partial": partial}

    def grep_slowly(self, pattern, base, glob, case_insensitive, output_mode, head_limit):
        """As `grep`, with the regular expressions of Python in a process that is killed when it takes too long."""
        try:
            re.compile(pattern)
        except re.error as error:
            raise Refused(f"pattern is not valid (Python re): {error}") from None
        names, _ = self.names(base, glob) if os.path.isdir(os.path.join(self.root.path, base)) else ([base], False)
        flags = "i" if case_insensitive else ""
        command = [PYTHON, "-I", "-c", SLOW_GREP, pattern, flags, output_mode]
        text, code, partial, _ = self.run(command, RESULT_MAX, head_limit, "\0".join(names).encode("utf-8", "replace"))
        lines = text.decode("utf-8", "replace").split("\n")
        return {"lines": [line for line in lines if line][: head_limit or None], "partial": partial}

    def run(self, command, limit, lines_max=0, stdin=b""):
        """Runs a program in the root. Returns (output, exit code, whether it was cut short, errors)."""
        process = subprocess.Popen(
            command, cwd=self.root.path, stdin=subprocess.PIPE if stdin else subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, close_fds=True,
        )
        timed_out = []
        timer = threading.Timer(SEARCH_SECONDS, lambda: (timed_out.append(1), process.kill()))
        timer.daemon = True
        timer.start()
        errors = []
        reader = threading.Thread(target=lambda: errors.append(process.stderr.read(65536)), daemon=True)
        reader.start()
        try:
            if stdin:
                threading.Thread(target=feed, args=(process.stdin, stdin), daemon=True).start()
            chunks = []
            size = lines = 0
            partial = False
            while True:
                chunk = process.stdout.read1(1 << 16)
                if not chunk:
                    break
                chunks.append(chunk)
                size += len(chunk)
                lines += chunk.count(b"\n") if lines_max else 0
                if size >= limit or (lines_max and lines >= lines_max):
                    partial = True
                    break
            if partial:
                process.kill()
            code = process.wait()
            reader.join(1)
            text = b"".join(chunks)
            if size > limit:
                text = text[: text.rfind(b"\n", 0, limit) + 1]
            return text, code, partial or bool(timed_out), b"".join(errors).decode("utf-8", "replace")
        finally:
            timer.cancel()
            process.kill()
            process.stdout.close()
            process.stderr.close()


def invalid_search(errors):
    """Returns which argument ripgrep does not accept, and why."""
    for start, name in (("error parsing glob", "glob"), ("unrecognized file type", "type")):
        if errors.startswith(start):
            return f"{name} is not valid: {errors[:600]}"
    return "pattern is not valid (ripgrep, Rust regex): " + errors[-600:]


def shown_lines(text, is_sorted):
    """Returns lines of ripgrep, in which a NUL ends the path, as it prints them otherwise, in the order of its paths."""
    pairs = []
    for line in text.decode("utf-8", "replace").removesuffix("\n").split("\n") if text else []:
        path, found, rest = line.removeprefix("./").partition("\0")
        number = re.match(r"\d+([:-])", rest)
        separator = number[1] if number else ":" if found and not rest.startswith(":") else ""
        pairs.append((path, f"{path}{separator}{rest}"))
    if is_sorted:
        # Stable: the lines of a file come together and in their order.
        pairs.sort(key=lambda pair: pair[0].split("/"))
    return [line for _, line in pairs]


def target(base):
    """Returns a path that no program takes for an option."""
    return "." if base == "." else "./" + base


def feed(pipe, data):
    try:
        pipe.write(data)
        pipe.close()
    except OSError:
        pass


def glob_matcher(pattern):
    """Returns a test of paths for `*`, `?`, `[]`, `**` and braces; a pattern without `/` matches the last name."""
    alternatives = [pattern]
    match = re.search(r"\{([^{}]*)\}", pattern)
    if match:
        alternatives = [pattern[: match.start()] + each + pattern[match.end() :] for each in match[1].split(",")]
    expressions = []
    for each in alternatives[:64]:
        parts = []
        for segment in each.split("/"):
            if segment == "**":
                parts.append("(?:[^/]+/)*")
            else:
                text = fnmatch.translate(segment).removeprefix("(?s:").removesuffix(")\\Z")
                parts.append(text.replace(".*", "[^/]*").replace("(?>[^/]*?", "(?>[^/]*?") + "/")
        expressions.append("".join(parts).removesuffix("/"))
    prefix = "" if "/" in pattern else "(?:.*/)?"
    compiled = re.compile(prefix + "(?:" + "|".join(expressions) + ")")
    return lambda path: compiled.fullmatch(path) is not None


SLOW_GREP = r"""
import re, sys
pattern, flags, mode = sys.argv[1:4]
wanted = re.compile(pattern, re.I if "i" in flags else 0)
for name in sys.stdin.buffer.read().decode("utf-8", "replace").split("\0"):
    try:
        with open(name, "rb") as file:
            if b"\0" in file.read(8192):
                continue
            file.seek(0)
            count = 0
            for number, line in enumerate(file, 1):
                text = line.decode("utf-8", "replace").rstrip("\r\n")
                if wanted.search(text):
                    count += 1
                    if mode == "content":
                        print(f"{name}:{number}:{text[:1000]}", flush=True)
                    elif mode == "files_with_matches":
                        print(name, flush=True)
                        break
            if mode == "count" and count:
                print(f"{name}:{count}", flush=True)
    except OSError:
        continue
"""
