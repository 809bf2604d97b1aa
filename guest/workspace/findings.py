"""Runs the tests and checkers of a project, and reads findings of one form from their output."""

import json
import os
import re
import subprocess
import tempfile
import threading

OUTPUT_PER_STREAM = 500 * 1024
FINDINGS_MAX = 500
LANGUAGES = ("go", "rust", "node", "python")
MARKERS = {"go": ("go.mod",), "rust": ("Cargo.toml",), "node": ("package.json",),
           "python": ("pyproject.toml", "setup.py", "setup.cfg", "pytest.ini", "requirements.txt")}
HOW = {
    "go": "Use an image with Go, or install it from go.dev.",
    "cargo": "Use an image with Rust, or install it with rustup.",
    "clippy": "Install it with: rustup component add clippy",
    "npm": "Use an image with Node.js and npm.",
    "pytest": "Install it with: pip install pytest",
    "ruff": "Install it with: pip install ruff",
    "mypy": "Install it with: pip install mypy",
    "golangci-lint": "Install it with: go install github.com/golangci/golangci-lint/v2/cmd/golangci-lint@latest",
    "pnpm": "Install it with: npm install -g pnpm",
    "yarn": "Install it with: npm install -g yarn",
    "bun": "Install it with: npm install -g bun",
    "eslint": "Install it with: npm install --save-dev eslint",
    "tsc": "Install it with: npm install --save-dev typescript",
    "git": "Install git, or use an image that has it.",
}

class Project:
    """Tests, checkers and scripts of a workspace."""

    def __init__(self, root):
        self.root = root
        self.failures = {}

    def exists(self, name):
        return os.path.exists(os.path.join(self.root.path, name))

    def detected(self):
        found = [language for language in LANGUAGES if any(self.exists(name) for name in MARKERS[language])]
        if not found and any(name.endswith(".py") for name in os.listdir(self.root.path)):
            found = ["python"]
        return found

    def language(self, wanted):
        found = self.detected()
        if wanted is not None:
            if wanted not in found:
                raise Refused(f'language "{wanted}" not detected in workspace; detected: {", ".join(found) or "none"}')
            return wanted
        if not found:
            raise Refused("no supported project detected in workspace root (go.mod, Cargo.toml, package.json, pyproject.toml)")
        if len(found) > 1:
            raise Refused(
                f"polyglot workspace: {len(found)} project types detected ({', '.join(found)}) — pass `language` to pick one"
            )
        return found[0]

    def package(self):
        try:
            with open(os.path.join(self.root.path, "package.json"), encoding="utf-8") as file:
                package = json.load(file)
                return package if isinstance(package, dict) else {}
        except (OSError, ValueError):
            return {}

    def manager(self):
        """Returns the package manager of the lock file, which is installed."""
        managers = (("pnpm-lock.yaml", "pnpm"), ("yarn.lock", "yarn"), ("bun.lockb", "bun"), ("bun.lock", "bun"))
        name = next((name for lock, name in managers if self.exists(lock)), "npm")
        need(name, HOW[name])
        return name

    def package_program(self, name):
        """Returns the path of a program of the packages of the project, or of PATH."""
        path = os.path.join(self.root.path, "node_modules", ".bin", name)
        return path if os.access(path, os.X_OK) else need(name, HOW[name])

    def script(self, name):
        scripts = self.package().get("scripts")
        return isinstance(scripts, dict) and name in scripts

    def execute(self, command, timeout):
        """Runs a program in the root. Returns (standard output, standard error, exit code or None after the timeout)."""
        try:
            process = subprocess.Popen(
                command, cwd=self.root.path, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                start_new_session=True, env={**os.environ, "CI": "1", "NO_COLOR": "1", "FORCE_COLOR": "0"},
            )
        except OSError as error:
            raise Refused(f"{command[0]} cannot be executed: {error.strerror}") from None
        in_call(process)
        outputs = [HeadAndTail(OUTPUT_PER_STREAM), HeadAndTail(OUTPUT_PER_STREAM)]

        def read(pipe, output):
            for chunk in iter(lambda: os.read(pipe.fileno(), 1 << 16), b""):
                output.add(chunk)

        threads = [threading.Thread(target=read, args=pair, daemon=True) for pair in zip((process.stdout, process.stderr), outputs)]
        for thread in threads:
            thread.start()
        code = None
        try:
            code = process.wait(timeout)
        except subprocess.TimeoutExpired:
            kill_group(process)
            process.wait()
        for thread in threads:
            thread.join(1)
        kill_group(process)
        return outputs[0].text(), outputs[1].text(), exit_code(process) if code is not None else None

    def report(self, command, timeout, read=None):
        out, err, code = self.execute(command, timeout)
        found = (read or places)(out, err) if code != 0 else []
        for each in found:
            if "file" in each:
                each["file"] = each["file"].removeprefix(self.root.path + "/")
        return {"command": " ".join(command), "stdout": out, "stderr": err, "exit": 124 if code is None else code,
                "timed_out": code is None, "findings": found[:FINDINGS_MAX]}

    def tests(self, reader, timeout=300, language=None, only=None):
        language = self.language(language)
        report = getattr(self, "tests_" + language)(timeout, only)
        self.failures[reader] = {"language": language, "findings": report["findings"]}
        if len(self.failures) > READERS_MAX:
            self.failures.pop(next(iter(self.failures)))
        report["language"] = language
        return report

    def tests_go(self, timeout, only):
        command = [need("go", HOW["go"]), "test", "-json", "-count=1"]
        if only:
            command += ["-run", "^(" + "|".join(re.escape(name.split("/")[0]) for name in only) + ")$"]
        return self.report(command + ["./..."], timeout, lambda out, err: go_failures(out, err, self.go_module()))

    def go_module(self):
        try:
            with open(os.path.join(self.root.path, "go.mod"), encoding="utf-8", errors="replace") as file:
                match = re.search(r"(?m)^module\s+\"?([^\s\"]+)", file.read(65536))
                return match and match[1]
        except OSError:
            return None

    def tests_rust(self, timeout, only):
        return self.report([need("cargo", HOW["cargo"]), "test", *(["--", "--exact", *only] if only else [])], timeout, rust_failures)

    def tests_node(self, timeout, only):
        if self.script("test"):
            manager = self.manager()
            return self.report([manager, "run", "--silent", "test"] if manager == "npm" else [manager, "run", "test"], timeout, node_failures)
        pattern = ["--test-name-pattern=" + "|".join(re.escape(name) for name in only)] if only else []
        return self.report([need("node", "Use an image with Node.js."), "--test", "--test-reporter=spec", *pattern], timeout, node_failures)

    def tests_python(self, timeout, only):
        pytest = self.python_module("pytest")
        if pytest is None:
            report = self.report([PYTHON, "-m", "unittest", "discover", "-v"], timeout, unittest_failures)
            if re.search(r"(?m)^Ran 0 tests", report["stderr"]):
                raise Refused(f"unittest found no tests. Tests that are functions need pytest. {HOW['pytest']}")
            return report
        with tempfile.TemporaryDirectory() as directory:
            path = os.path.join(directory, "report.xml")
            command = [*pytest, "-q", "--tb=short", "-p", "no:cacheprovider", f"--junitxml={path}", *(only or [])]
            report = self.report(command, timeout, lambda out, err: junit_failures(path) or places(out, err))
            report["command"] = "pytest -q"
            return report

    def python_module(self, name):
        """Returns the command of a Python program: of the virtual environment, of PATH, or as a module."""
        for directory in (".venv", "venv"):
            path = os.path.join(self.root.path, directory, "bin", name)
            if os.access(path, os.X_OK):
                return [path]
        found = which(name)
        if found:
            return [found]
        check = subprocess.run([PYTHON, "-c", f"import {name}"], cwd="/", capture_output=True)
        return [PYTHON, "-m", name] if check.returncode == 0 else None

    def required_python(self, name):
        found = self.python_module(name)
        if found is None:
            raise Refused(f"{name} is not installed in this sandbox. {HOW[name]}")
        return found

    def lint(self, timeout=120, language=None):
        language = self.language(language)
        if language == "go":
            command = [need("golangci-lint", HOW["golangci-lint"]), "run", "./..."]
        elif language == "rust":
            need("cargo-clippy", HOW["clippy"])
            command = [need("cargo", HOW["cargo"]), "clippy", "--all-targets", "--message-format=short"]
        elif language == "python":
            command = [*self.required_python("ruff"), "check", "--output-format=concise", "."]
        elif self.script("lint"):
            command = [self.manager(), "run", "lint"]
        else:
            command = [self.package_program("eslint"), ".", "--format=json"]
        return {**self.report(command, timeout, lint_findings), "language": language}

    def typecheck(self, timeout=120, language=None):
        language = self.language(language)
        if language == "go":
            command = [need("go", HOW["go"]), "vet", "./..."]
        elif language == "rust":
            command = [need("cargo", HOW["cargo"]), "check", "--all-targets", "--message-format=short"]
        elif language == "python":
            command = [*self.required_python("mypy"), "."]
        elif self.script("typecheck"):
            command = [self.manager(), "run", "typecheck"]
        else:
            command = [self.package_program("tsc"), "--noEmit", "--pretty", "false"]
        return {**self.report(command, timeout, lint_findings), "language": language}

    def run_script(self, name, timeout=300, language=None):
        if self.language(language) != "node":
            raise Refused("run_script runs the scripts of package.json; run other programs with Bash")
        if not self.script(name):
            scripts = self.package().get("scripts")
            names = ", ".join(scripts) if isinstance(scripts, dict) and scripts else "none"
            raise Refused(f"package.json has no script {name!r}; scripts: {names}")
        return self.report([self.manager(), "run", name], timeout)

    def last_failures(self, reader, limit=50):
        last = self.failures.get(reader)
        if last is None:
            raise Refused("no tests were run yet. Call run_tests first.")
        return {"findings": last["findings"][:limit], "total": len(last["findings"]), "language": last["language"]}

    def failing_tests(self, reader, limit=50, timeout=300, language=None):
        last = self.failures.get(reader)
        if last is None:
            raise Refused("no tests were run yet. Call run_tests first.")
        names = [each["test"] for each in last["findings"] if each.get("test")][:limit]
        if not names:
            raise Refused("the last run of the tests had no failures that can be run again. Call run_tests.")
        return self.tests(reader, timeout, language or last["language"], names)

    def of_file(self, path):
        """Findings of one file from a fast checker. Returns None if there is no checker."""
        full = os.path.join(self.root.path, path)
        extension = os.path.splitext(path)[1]
        checkers = {
            ".py": [["ruff", "check", "--output-format=concise", full]],
            ".go": [["gofmt", "-l", "-e", full]],
            ".sh": [["bash", "-n", full]],
            ".mjs": [["node", "--check", full]],
            ".cjs": [["node", "--check", full]],
        }
        try:
            if extension == ".py" and os.path.getsize(full) < 512 * 1024:
                with open(full, "rb") as file:
                    compile(file.read(), path, "exec", dont_inherit=True)
            elif extension == ".json" and os.path.getsize(full) < 4 * 1024 * 1024:
                with open(full, "rb") as file:
                    json.loads(file.read())
                return []
        except SyntaxError as error:
            return [finding(path, error.lineno, error.offset, "syntax", message=error.msg or "invalid syntax")]
        except (ValueError, RecursionError, MemoryError, OSError) as error:
            line = getattr(error, "lineno", None)
            return [finding(path, line, getattr(error, "colno", None), "syntax", message=str(error)[:300])]
        for command in checkers.get(extension, []):
            program = which(command[0])
            if program is None:
                continue
            out, err, code = self.execute([program, *command[1:]], 5)
            found = lint_findings(out, err) if code not in (0, None) else []
            for each in found:
                each["file"] = path
            return found
        return [] if extension == ".py" else None
