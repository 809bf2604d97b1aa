"""Code intelligence: definitions, references, symbols and new names."""

import difflib
import json
import math
import os
import re
import subprocess
import tempfile
import textwrap

PLACES_MAX = 200
CORPUS_FILES = 5000
WORD = re.compile(r"[A-Za-z_$][\w$]*")


class Code:
    def __init__(self, root, search, files):
        self.root = root
        self.search = search
        self.files = files
        self.servers = LanguageServers(root)
        self.changed_function = changed_function
        self.corpus = None

    def stop(self):
        self.servers.stop()

    def symbols(self, file_path):
        relative, _, data = self.files.load(file_path, "read for symbols")
        if language_of(relative) == "python":
            found, source = symbols_of(relative, data), "Python"
        else:
            found, source = ctags_symbols(self.root.path, relative), "ctags"
            if not found:
                found, source = symbols_of(relative, data), "a scan of declarations"
        if found is None:
            raise Refused(f"symbols of {file_path} are not known: install universal-ctags, or use Grep")
        return {"symbols": [{key: each[key] for key in ("name", "kind", "line", "last", "container")} for each in found], "source": source}

    def word_at(self, text, line, column):
        lines = text.split("\n")
        if line > len(lines):
            raise Refused(f"line {line} exceeds line count {len(lines)}")
        for match in WORD.finditer(lines[line - 1]):
            if match.start() <= column - 1 <= match.end():
                return match[0]
        raise Refused(f"there is no name at line {line}, column {column}: {lines[line - 1].strip()[:200]}")

    def ask(self, method, file_path, line, col, extra=None):
        """Asks a language server. Returns (its answer, or None without a server, the file, its text)."""
        relative, _, data = self.files.load(file_path, "analyzed")
        server = self.servers.get(language_of(relative))
        if server is None:
            return None, None, relative, data
        server.open(relative, data)
        params = {"textDocument": {"uri": server.uri(relative)}, "position": {"line": line - 1, "character": col - 1}, **(extra or {})}
        return server, server.ask(method, params), relative, data

    def definition(self, file_path, line, col):
        server, answer, relative, data = self.ask("textDocument/definition", file_path, line, col)
        if server is not None:
            return {"places": self.places(server, answer), "source": server.process.args[0].rsplit("/", 1)[-1]}
        word = self.word_at(data.decode("utf-8", "replace"), line, col)
        found = [place for place in self.by_name(word, relative)]
        return {"places": found, "source": None, "advice": self.advice(relative)}

    def references(self, file_path, line, col):
        server, answer, relative, data = self.ask("textDocument/references", file_path, line, col, {"context": {"includeDeclaration": True}})
        if server is not None:
            return {"places": self.places(server, answer), "source": server.process.args[0].rsplit("/", 1)[-1]}
        word = self.word_at(data.decode("utf-8", "replace"), line, col)
        lines = self.search.grep(rf"\b{re.escape(word)}\b", head_limit=PLACES_MAX)["lines"]
        return {"places": [place_of(each) for each in lines if place_of(each)], "source": None, "advice": self.advice(relative)}

    def advice(self, relative):
        how = self.servers.how(language_of(relative))
        if how is None:
            return "Found by name, since no language server is known for this language."
        return f"Found by name, since no language server for this language is installed. {how}"

    def by_name(self, word, relative):
        extension = os.path.splitext(relative)[1]
        names = self.search.grep(rf"\b{re.escape(word)}\b", glob="*" + extension, output_mode="files_with_matches", head_limit=PLACES_MAX)["lines"]
        for name in names:
            try:
                found, _, data = self.files.load(name, "read")
                for each in symbols_of(found, data) or []:
                    if each["name"] == word:
                        text = data.decode("utf-8", "replace").split("\n")[each["line"] - 1].strip()
                        yield {"file": name, "line": each["line"], "column": 1, "text": text[:300]}
            except Refused:
                continue

    def places(self, server, answer):
        answer = answer if isinstance(answer, list) else [] if answer is None else [answer]
        found = []
        for each in answer[:PLACES_MAX]:
            at = (each.get("range") or each.get("targetSelectionRange"))["start"]
            path = server.path(each.get("uri") or each.get("targetUri"))
            found.append({"file": path, "line": at["line"] + 1, "column": at["character"] + 1, "text": self.line_of(path, at["line"])})
        return found

    def line_of(self, path, index):
        try:
            with open(os.path.join(self.root.path, path), "rb") as file:
                for number, line in enumerate(file):
                    if number == index:
                        return line.decode("utf-8", "replace").strip()[:300]
        except OSError:
            pass
        return ""

    def rename(self, reader, file_path, line, col, new_name):
        if not re.fullmatch(r"[^\W\d][\w$]*", new_name):
            raise Refused(f"new_name is not a name: {new_name[:100]}")
        relative = "/".join(self.root.parts(file_path))
        if self.files.seen.get(reader, relative) is None:
            raise Refused(f"refusing to rename in {file_path}: Read it first")
        server, answer, relative, _ = self.ask("textDocument/rename", file_path, line, col, {"newName": new_name})
        if server is None:
            how = self.servers.how(language_of(relative)) or "No language server is known for this language."
            raise Refused(f"renaming needs a language server, and none for this language is installed. {how}")
        edits = {}
        for uri, each in (answer or {}).get("changes", {}).items():
            edits.setdefault(uri, []).extend(each)
        for change in (answer or {}).get("documentChanges", []):
            if "textDocument" in change:
                edits.setdefault(change["textDocument"]["uri"], []).extend(change["edits"])
        if not edits:
            raise Refused("the language server found nothing to rename here")
        parts = []
        for uri, each in sorted(edits.items()):
            path = server.path(uri)
            before = self.files.load(path, "renamed")[2].decode("utf-8")
            after = with_edits(before, each)
            parts += difflib.unified_diff(before.splitlines(True), after.splitlines(True), f"a/{path}", f"b/{path}")
        return {"diff": "".join(line if line.endswith("\n") else line + "\n\\ No newline at end of file\n" for line in parts), "files": len(edits)}

    def source_files(self):
        names, _ = self.search.names(".")
        return [name for name in names if language_of(name)][:CORPUS_FILES]

    def documents(self):
        """Symbols of all source files with their words; files that did not change are not read again."""
        known = self.corpus or {}
        fresh = {}
        for name in self.source_files():
            try:
                status = os.stat(name, dir_fd=self.root.fd, follow_symlinks=False)
                key = (status.st_mtime_ns, status.st_size)
                if name in known and known[name][0] == key:
                    fresh[name] = known[name]
                    continue
                path, _, data = self.files.load(name, "searched")
                text = data.decode("utf-8", "replace").split("\n")
                rows = []
                for each in symbols_of(path, data) or []:
                    before = [line for line in text[max(0, each["first"] - 6) : each["first"] - 1] if line.lstrip().startswith(("//", "#", "*", "/*"))]
                    rows.append((each["name"], each["kind"], each["line"], words_of(" ".join([each["name"], each["container"] or "", each["doc"], *before])), text[each["line"] - 1].strip()[:200]))
                fresh[name] = (key, rows)
            except (Refused, OSError):
                continue
        self.corpus = fresh
        return fresh

    def search_code(self, query, limit=20):
        """Ranks symbols by their names and comments: BM25 with k1 = 1.5 and b = 0.75."""
        documents = [(name, *row) for name, (_, rows) in self.documents().items() for row in rows]
        wanted = set(words_of(query))
        if not wanted:
            raise Refused("query has no words")
        counts = {word: sum(1 for each in documents if word in each[4]) for word in wanted}
        average = sum(len(each[4]) for each in documents) / max(1, len(documents))
        scored = []
        for name, symbol, kind, line, words, text in documents:
            score = 0.0
            for word in wanted:
                often = words.count(word)
                if often:
                    rarity = math.log(1 + (len(documents) - counts[word] + 0.5) / (counts[word] + 0.5))
                    score += rarity * often * 2.5 / (often + 1.5 * (0.25 + 0.75 * len(words) / max(1.0, average)))
            if score:
                scored.append((-score, name, line, symbol, kind, text))
        scored.sort()
        return {"results": [{"file": name, "line": line, "name": symbol, "kind": kind, "text": text, "score": round(-score, 3)}
                            for score, name, line, symbol, kind, text in scored[:limit]], "symbols": len(documents)}

    def tests_covering(self, file_path, line=None):
        """Test files that name the file or the symbol at a line."""
        relative, _, data = self.files.load(file_path, "analyzed")
        stem = os.path.splitext(os.path.basename(relative))[0]
        words = [stem]
        if line is not None:
            around = [each for each in symbols_of(relative, data) or [] if each["first"] <= line <= each["last"]]
            if not around:
                raise Refused(f"line {line} of {file_path} is in no function or class")
            words = [min(around, key=lambda each: each["last"] - each["first"])["name"]]
        pattern = "|".join(rf"\b{re.escape(word)}\b" for word in words)
        names = self.search.grep(pattern, output_mode="files_with_matches", head_limit=5000)["lines"]
        tests = [name for name in names if is_test(name) and name != relative]
        return {"tests": tests[:PLACES_MAX], "word": words[0], "total": len(tests)}

    def render(self, program, source, output_path, timeout=60):
        extension = os.path.splitext(output_path)[1]
        if extension not in (".svg", ".png", ".pdf"):
            raise Refused("output_path must end with .svg, .png or .pdf")
        if program == "dot":
            command = [need("dot", "Install graphviz."), "-T" + extension[1:]]
        else:
            command = [need("mmdc", "Install it with: npm install -g @mermaid-js/mermaid-cli")]
        with tempfile.TemporaryDirectory() as directory:
            given, made = os.path.join(directory, "in.mmd"), os.path.join(directory, "out" + extension)
            with open(given, "w", encoding="utf-8") as file:
                file.write(source)
            command += ["-o", made, given] if program == "dot" else ["-q", "-i", given, "-o", made]
            try:
                done = subprocess.run(command, capture_output=True, timeout=timeout, cwd=directory)
            except subprocess.TimeoutExpired:
                raise Refused(f"rendering took longer than {timeout} seconds") from None
            if done.returncode != 0 or not os.path.exists(made):
                raise Refused(f"{program} failed: {done.stderr.decode('utf-8', 'replace').strip()[-1000:]}")
            if os.path.getsize(made) > 10 * 1024 * 1024:
                raise Refused("the picture has more than 10 MiB")
            with open(made, "rb") as file:
                data = file.read()
        folder, name, names = self.root.locate(output_path, create=True)
        try:
            if name is None:
                raise Refused(f"path is a directory: {output_path}")
            try:
                status = os.stat(name, dir_fd=folder, follow_symlinks=False)
            except FileNotFoundError:
                status = None
            if status is not None and kind_of(status.st_mode) != "a file":
                raise Refused(f"path is {kind_of(status.st_mode)}: {output_path}")
            self.files.replace(folder, name, data, status, output_path)
        finally:
            os.close(folder)
        return {"bytes": len(data), "path": "/".join(names)}


def words_of(text):
    spaced = re.sub(r"([a-z0-9])([A-Z])", r"\1 \2", text)
    return [word.lower() for word in re.findall(r"[A-Za-z]{2,}|\d+", spaced.replace("_", " "))]


def is_test(name):
    base = os.path.basename(name)
    return bool(re.search(r"(^test_|_test\.|\.test\.|\.spec\.|^tests?\.)", base)) or bool(re.search(r"(^|/)(tests?|__tests__|spec)/", name))


def place_of(line):
    match = re.match(r"^(.+?):(\d+):(.*)$", line)
    return match and {"file": match[1], "line": int(match[2]), "column": 1, "text": match[3].strip()[:300]}


def with_edits(text, edits):
    """Applies the edits of a language server, whose columns count UTF-16 units."""
    lines = text.splitlines(keepends=True) or [""]

    def offset(position):
        line = lines[position["line"]] if position["line"] < len(lines) else ""
        before = line.encode("utf-16-le")[: position["character"] * 2].decode("utf-16-le", "ignore")
        return sum(len(each) for each in lines[: position["line"]]) + len(before)

    for each in sorted(edits, key=lambda edit: (edit["range"]["start"]["line"], edit["range"]["start"]["character"]), reverse=True):
        text = text[: offset(each["range"]["start"])] + each["newText"] + text[offset(each["range"]["end"]) :]
    return text
