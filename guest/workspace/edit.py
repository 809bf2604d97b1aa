"""Replaces text in files, byte for byte."""

import os
import unicodedata

ADVICE_MAX = 2 * 1024 * 1024
LOOKALIKES = str.maketrans({"‘": "'", "’": "'", "“": '"', "”": '"', "–": "-", "—": "-", "−": "-", "\u00a0": " ", "…": "..."})


def edit(files, reader, file_path, edits):
    """Applies all edits, or none. Returns the number of replacements."""
    with files.locks[file_path.split("/")[-1]]:
        relative, status, data = files.load(file_path)
        known = files.seen.get(reader, relative)
        if known is None:
            raise Refused(f"refusing to edit {file_path}: Read it first")
        if not is_same(known, status, data):
            raise Refused(f"refusing to edit {file_path}: it has changed since it was read. Read it again.")
        changed = data
        total = 0
        for number, each in enumerate(edits, 1):
            try:
                changed, count = apply(changed, file_path, **each)
            except Refused as refusal:
                if len(edits) == 1:
                    raise
                raise Refused(f"edit {number} of {len(edits)}: {refusal}. No edit was applied.") from None
            total += count
        directory, name, _ = files.root.locate(relative)
        try:
            now = os.stat(name, dir_fd=directory, follow_symlinks=False)
            if stamp_of(now, None)[:5] != stamp_of(status, None)[:5]:
                raise Refused(f"refusing to edit {file_path}: it changed meanwhile. Read it again.")
            files.replace(directory, name, changed, status, file_path)
            after = os.stat(name, dir_fd=directory, follow_symlinks=False)
        except OSError as error:
            raise explain(error, file_path) from error
        finally:
            os.close(directory)
        files.seen.note(reader, relative, stamp_of(after, changed))
    return {"count": total, "path": relative}


def apply(data, file_path, old_string, new_string, replace_all=False):
    if old_string == "":
        raise Refused("old_string must be non-empty")
    old = old_string.encode("utf-8")
    new = new_string.encode("utf-8")
    if old == new:
        raise Refused("old_string and new_string are equal")
    count = data.count(old)
    # Read shows the lines of a file that ends them with CR LF without the CR.
    if count == 0 and b"\r\n" in data and data.count(b"\r\n") == data.count(b"\n") and b"\r" not in old:
        old = old.replace(b"\n", b"\r\n")
        new = new.replace(b"\r\n", b"\n").replace(b"\n", b"\r\n")
        count = data.count(old)
    elif count > 0 and data.count(b"\r\n") == data.count(b"\n") > 0 and b"\r" not in old and b"\n" not in old:
        new = new.replace(b"\r\n", b"\n").replace(b"\n", b"\r\n")
    if count == 0:
        raise Refused(f"old_string not found in {file_path}{advice(data, old_string)}")
    if count > 1 and not replace_all:
        raise Refused(
            f"old_string matched {count} times in {file_path}; add context to make it unique or set replace_all=true"
        )
    return data.replace(old, new), count


def advice(data, old_string):
    """Returns what is nearly there, to be appended to the refusal."""
    if len(data) > ADVICE_MAX or len(old_string) > 65536:
        return ""
    text = data.decode("utf-8", "replace")
    lines = old_string.split("\n")
    if all(line.split("\t", 1)[0].strip().isdigit() for line in lines if line) and "\t" in old_string:
        return "; it starts with line numbers as Read shows them, which are not part of the file"
    if "\r\n" in text and "\n" in old_string:
        return "; the file mixes line endings: match within one line, or write \\r where lines end with it"
    plain = looks_like(text)
    at = plain.find(looks_like(old_string))
    if at != -1:
        line = plain.count("\n", 0, at) + 1
        return f"; near line {line} it occurs with other characters that look alike, such as typographic quotes or no-break spaces"
    stripped = [line.strip() for line in text.split("\n")]
    wanted = [line.strip() for line in lines]
    while wanted and not wanted[-1]:
        wanted.pop()
    while wanted and not wanted[0]:
        wanted.pop(0)
    if wanted:
        for index, line in enumerate(stripped):
            if line == wanted[0] and stripped[index : index + len(wanted)] == wanted:
                return f"; it occurs at line {index + 1} with other white space: tabs and spaces must match exactly"
        if wanted[0] in stripped:
            return f"; its first line is line {stripped.index(wanted[0]) + 1}, but what follows differs. Read the file again"
    return ". Read the file again: it must match exactly"


def looks_like(text):
    return unicodedata.normalize("NFKC", text.translate(LOOKALIKES))
