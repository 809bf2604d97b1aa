"""Finds the functions, classes and methods of a file: with the parser of Python, ctags, or a scan for braces."""

import ast
import bisect
import json
import os
import re
import subprocess

SOURCE_MAX = 2 * 1024 * 1024
SYMBOLS_MAX = 2000
EXTENSIONS = {".py": "python", ".go": "go", ".rs": "rust", ".js": "javascript", ".mjs": "javascript", ".cjs": "javascript",
              ".jsx": "javascript", ".ts": "typescript", ".tsx": "typescript", ".mts": "typescript", ".java": "java",
              ".c": "c", ".h": "c", ".cc": "c", ".cpp": "c"}

# Declarations at the start of a line, in languages with braces.
DECLARATIONS = {
    "go": (
        (r"^func \((?P<receiver>[^)]*)\) (?P<name>\w+)", "method"),
        (r"^func (?P<name>\w+)", "function"),
        (r"^type (?P<name>\w+)", "type"),
    ),
    "rust": (
        (r"^\s*(?:pub(?:\([^)]*\))? )?(?:default |const |async |unsafe |extern (?:\"[^\"]*\" )?)*fn (?P<name>\w+)", "function"),
        (r"^\s*(?:pub(?:\([^)]*\))? )?(?:struct|enum|trait|union|mod|type) (?P<name>\w+)", "type"),
        (r"^\s*impl(?:<[^>]*>)? (?:[\w:<>, ]+ for )?(?P<name>\w+)", "impl"),
    ),
    "javascript": (
        (r"^\s*(?:export )?(?:default )?(?:async )?function\s*\*?\s*(?P<name>[\w$]+)", "function"),
        (r"^\s*(?:export )?(?:default )?(?:abstract )?class (?P<name>[\w$]+)", "class"),
        (r"^\s*(?:export )?(?:declare )?(?:interface|enum|type|namespace) (?P<name>[\w$]+)", "type"),
        (r"^\s*(?:export )?(?:const|let|var) (?P<name>[\w$]+)[^=\n]*= (?:async )?(?:function\b|\([^)\n]*\)[^=\n]*=>|\w+ =>)", "function"),
        (r"^\s+(?:(?:public|private|protected|static|async|readonly|override|get|set) )*(?P<name>#?[\w$]+)\s*\([^)\n]*\)[^{;\n]*\{\s*$", "method"),
    ),
    "c": (
        (r"^(?:[\w*]+[ *]+)+(?P<name>\w+)\([^;]*$", "function"),
        (r"^(?:typedef )?(?:struct|enum|union|class|namespace) (?P<name>\w+)\s*\{", "type"),
    ),
    "java": (
        (r"^\s*(?:(?:public|private|protected|static|final|abstract) )*(?:class|interface|enum|record) (?P<name>\w+)", "class"),
        (r"^\s+(?:(?:public|private|protected|static|final|abstract|synchronized) )+[\w<>\[\], ?]+ (?P<name>\w+)\([^;]*$", "method"),
    ),
}
DECLARATIONS["typescript"] = DECLARATIONS["javascript"]
COMPILED = {language: [(re.compile(each), kind) for each, kind in rows] for language, rows in DECLARATIONS.items()}
KEYWORDS = {"if", "for", "while", "switch", "catch", "return", "else", "function", "do", "try"}


def language_of(path):
    return EXTENSIONS.get(os.path.splitext(path)[1])


def symbols_of(path, data):
    """Returns (name, kind, first line, last line, container) of each symbol, or None for an unknown language."""
    language = language_of(path)
    if len(data) > SOURCE_MAX:
        raise Refused(f"{path} has more than {SOURCE_MAX} bytes; symbols of larger files are not read")
    if language == "python":
        return python_symbols(path, data)
    if language is None:
        return None
    return scanned_symbols(language, data.decode("utf-8", "replace"))


def python_symbols(path, data):
    try:
        tree = ast.parse(data)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise Refused(f"{path} cannot be parsed: {error}") from None
    found = []

    def visit(node, container):
        for child in ast.iter_child_nodes(node):
            if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
                kind = "class" if isinstance(child, ast.ClassDef) else "method" if isinstance(node, ast.ClassDef) else "function"
                first = min([child.lineno, *(each.lineno for each in child.decorator_list)])
                found.append({"name": child.name, "kind": kind, "line": child.lineno, "first": first,
                              "last": child.end_lineno, "container": container, "doc": ast.get_docstring(child) or "",
                              "body": body_start(child)})
                visit(child, child.name if container is None else f"{container}.{child.name}")
            elif len(found) < SYMBOLS_MAX:
                visit(child, container)

    visit(tree, None)
    return found[:SYMBOLS_MAX]


def body_start(node):
    first = node.body[0]
    decorators = getattr(first, "decorator_list", [])
    return min([first.lineno, *(each.lineno for each in decorators)]), first.col_offset


def blank_text(text, language):
    """Replaces comments and strings by spaces, so that braces in them do not count."""
    pattern = r"//[^\n]*|/\*.*?(?:\*/|\Z)|\"(?:\\.|[^\"\\\n])*\"|`(?:\\.|[^`\\])*`"
    pattern += r"|'(?:\\.|[^'\\\n])'" if language in ("rust", "go", "c", "java") else r"|'(?:\\.|[^'\\\n])*'"
    return re.sub(pattern, lambda match: re.sub(r"[^\n]", " ", match[0]), text, flags=re.S)


def scanned_symbols(language, text):
    plain = blank_text(text, language)
    starts = [0]
    for match in re.finditer("\n", text):
        starts.append(match.end())
    found = []
    containers = []
    lines = plain.split("\n")
    for index, line in enumerate(lines):
        if len(line) > 2000:
            continue
        for expression, kind in COMPILED[language]:
            match = expression.match(line)
            if not match or match["name"] in KEYWORDS:
                continue
            opened = plain.find("{", starts[index])
            ended = plain.find(";", starts[index])
            if kind == "type" and language == "go" and "{" not in line:
                opened = -1
            last = index + 1
            close = None
            if opened != -1 and (ended == -1 or opened < ended) and len(found) < SYMBOLS_MAX:
                close = closing_brace(plain, opened)
                last = bisect.bisect_right(starts, close)
            while containers and containers[-1][1] < index + 1:
                containers.pop()
            container = containers[-1][0] if containers else None
            receiver = match.groupdict().get("receiver")
            if receiver:
                container = receiver.split()[-1]
            found.append({"name": match["name"], "kind": "method" if kind == "function" and container else kind,
                          "line": index + 1, "first": index + 1, "last": last, "container": container, "doc": "",
                          "braces": None if close is None else (opened, close)})
            if kind in ("class", "type", "impl") and last > index + 1:
                containers.append((match["name"], last))
            break
        if len(found) >= SYMBOLS_MAX:
            break
    return found


def closing_brace(plain, opened):
    depth = 0
    for match in re.compile("[{}]").finditer(plain, opened):
        depth += 1 if match[0] == "{" else -1
        if depth == 0:
            return match.start()
    return len(plain) - 1


def ctags_symbols(root, path):
    ctags = which("ctags")
    if ctags is None:
        return None
    command = [ctags, "--output-format=json", "--fields=+neKS", "--options=NONE", "-f", "-", os.path.join(root, path)]
    try:
        done = subprocess.run(command, capture_output=True, timeout=20, cwd=root)
    except subprocess.TimeoutExpired:
        return None
    found = []
    for line in done.stdout.split(b"\n")[:SYMBOLS_MAX]:
        try:
            tag = json.loads(line)
            found.append({"name": tag["name"], "kind": tag.get("kind", "symbol"), "line": tag["line"], "first": tag["line"],
                          "last": tag.get("end", tag["line"]), "container": tag.get("scope"), "doc": ""})
        except (ValueError, KeyError, TypeError):
            continue
    return found if done.returncode == 0 else None


def find_function(symbols, name, file_path):
    """Finds `name`, `Class.name`, or `(*Type).name`."""
    match = re.match(r"^\(?\*?(\w+)\)?(?:\.|::)(#?[\w$]+)$", name)
    container, plain = (match[1], match[2]) if match else (None, name)
    kinds = ("function", "method")
    found = [each for each in symbols if each["name"] == plain and each["kind"] in kinds
             and (container is None or (each["container"] or "").lstrip("*").split(".")[-1] == container)]
    if not found:
        names = [each["name"] for each in symbols if each["kind"] in kinds]
        raise Refused(f"function {name} not found in {file_path}; functions: {', '.join(names[:30]) or 'none'}")
    if len(found) > 1:
        lines = ", ".join(str(each["line"]) for each in found)
        raise Refused(f"{len(found)} functions are named {name} in {file_path} (lines {lines}); write Class.name or use Edit")
    return found[0]


def changed_function(data, file_path, how, name, text):
    """Returns the file with another body or signature of a function, or with a function after it."""
    source = data.decode("utf-8")
    symbols = symbols_of(file_path, data)
    if symbols is None:
        raise Refused(f"functions of {os.path.splitext(file_path)[1] or 'this kind of'} files cannot be edited by name; use Edit")
    found = find_function(symbols, name, file_path)
    lines = source.splitlines(keepends=True)
    if how == "insert":
        at = sum(len(line) for line in lines[: found["last"]])
        gap = "" if source[:at].endswith("\n") else "\n"
        return source[:at] + gap + "\n" + text.rstrip("\n") + "\n" + source[at:]
    if language_of(file_path) == "python":
        return changed_python(lines, found, how, text, file_path)
    if found["braces"] is None:
        raise Refused(f"{name} has no body in {file_path}")
    opened, closed = found["braces"]
    if how == "body":
        body = text.strip("\n")
        if body.lstrip().startswith("{") and body.rstrip().endswith("}"):
            body = body.strip()[1:-1].strip("\n")
        changed = source[: opened + 1] + "\n" + body + "\n" + source[closed:]
    else:
        start = sum(len(line) for line in lines[: found["line"] - 1])
        changed = source[:start] + text.rstrip().removesuffix("{").rstrip() + " " + source[opened:]
    scanned = scanned_symbols(language_of(file_path), changed)
    balance = blank_text(changed, language_of(file_path))
    if balance.count("{") != balance.count("}") or not scanned:
        raise Refused("the braces of the new text do not match")
    return changed


def changed_python(lines, found, how, text, file_path):
    start, column = found["body"]
    if start == found["line"]:
        raise Refused(f"{found['name']} is written on one line; use Edit")
    if how == "body":
        indent = " " * column
        new = textwrap.dedent(text.strip("\n"))
        body = "".join(indent + line if line.strip() else line for line in new.splitlines(keepends=True)).rstrip("\n") + "\n"
        changed = "".join(lines[: start - 1]) + body + "".join(lines[found["last"] :])
    else:
        indent = lines[found["line"] - 1][: len(lines[found["line"] - 1]) - len(lines[found["line"] - 1].lstrip())]
        head = text.strip().rstrip(":") + ":\n"
        changed = "".join(lines[: found["line"] - 1]) + indent + head + "".join(lines[start - 1 :])
    try:
        ast.parse(changed)
    except (SyntaxError, ValueError) as error:
        raise Refused(f"{file_path} would no longer be valid Python: {error}") from None
    return changed
