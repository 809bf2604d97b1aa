"""Reads findings from the output of test runners and checkers."""

import json
import os
import re
import xml.etree.ElementTree as xml

PLACE = re.compile(r"(?P<file>[^\s:()\[\]'\"]+\.[A-Za-z]{1,4}):(?P<line>\d+)(?::(?P<column>\d+))?")
LINTED = re.compile(r"^(?P<file>[^\s:][^:]*):(?P<line>\d+):(?:(?P<column>\d+):)?\s*(?P<message>.+)$")
TSC = re.compile(r"^(?P<file>[^\s(]+)\((?P<line>\d+),(?P<column>\d+)\): (?P<severity>error|warning) (?P<rule>TS\d+): (?P<message>.+)$")


def finding(file=None, line=None, column=None, rule=None, severity="error", message="", test=None, detail=None):
    found = {"file": file.removeprefix("./") if file else None, "line": line, "column": column, "rule": rule, "severity": severity,
             "message": message[:2000], "test": test, "detail": detail[:4000] if detail else None}
    return {key: value for key, value in found.items() if value is not None}


def places(out, err):
    """Findings from any text that names files and lines."""
    found = []
    for line in (out + "\n" + err).split("\n"):
        match = PLACE.search(line)
        if match:
            found.append(finding(match["file"], int(match["line"]), int(match["column"] or 0) or None, message=line.strip()))
    return found


def lint_findings(out, err):
    try:
        report = json.loads(out)
        if isinstance(report, list):
            return [
                finding(file["filePath"], m.get("line"), m.get("column"), m.get("ruleId"),
                        "error" if m.get("severity") == 2 else "warning", m.get("message", ""))
                for file in report for m in file.get("messages", [])
            ]
    except (ValueError, KeyError, TypeError, AttributeError):
        pass
    found = []
    for line in (out + "\n" + err).split("\n"):
        line = line.removeprefix("vet: ")
        match = TSC.match(line) or LINTED.match(line)
        if not match:
            continue
        fields = match.groupdict()
        message = fields["message"]
        # As cargo, ruff and mypy write it: the kind, the rule and the message, in which mypy has the rule at the end.
        parts = re.match(r"(?:(error|warning|note)(?:\[([\w:]+)\])?: )?(?:([A-Z]{1,4}\d{2,4}) )?(.*?)(?:  \[([a-z-]+)\])?$", message)
        if "rule" in fields or parts is None:
            severity, rule = fields.get("severity", "error"), fields.get("rule")
        else:
            severity, message = parts[1] or "error", parts[4]
            rule = parts[2] or parts[3] or parts[5]
        found.append(finding(fields["file"], int(fields["line"]), int(fields["column"] or 0) or None, rule, severity, message))
    return found


def junit_failures(path):
    try:
        tree = xml.parse(path)
    except (OSError, xml.ParseError):
        return []
    found = []
    for case in tree.iter("testcase"):
        for failure in [*case.findall("failure"), *case.findall("error")]:
            text = failure.text or ""
            module = case.get("classname", "").split(".")
            matches = list(PLACE.finditer(text))
            own = [match for match in matches if not match["file"].startswith(("/usr/", "<"))]
            at = own[-1] if own else None
            file = at["file"] if at else None
            stem = [part for part in module if part and not part[:1].isupper()]
            classes = [part for part in module if part[:1].isupper()]
            name = case.get("name", "")
            test = "::".join(["/".join(stem) + ".py", *classes, name]) if stem else name
            message = failure.get("message") or text[:300]
            if message == "collection failure":
                # The name is that of the module, and the reason is in the text.
                test = name.replace(".", "/") + ".py"
                reasons = re.findall(r"(?m)^E\s+(.*)$", text)
                message = reasons[-1] if reasons else message
            found.append(finding(file, int(at["line"]) if at else None, rule="test", message=message, test=test, detail=text))
    return found


def go_failures(out, err, module=None):
    """Failures of `go test -json`. @param module: name of the module in the root, below which packages are directories."""
    output = {}
    failed = []
    built = []
    for line in out.split("\n"):
        try:
            event = json.loads(line)
            action, text = event.get("Action"), event.get("Output", "")
        except (ValueError, AttributeError):
            continue
        key = (event.get("Package"), event.get("Test"))
        if action == "output":
            output.setdefault(key, []).append(text)
        elif action == "build-output":
            built.append(text)
        elif action == "fail" and key[1]:
            failed.append(key)
    found = []
    for package, test in failed:
        text = "".join(output.get((package, test), []))
        file, line, message = go_place(text)
        if file is None and any(each[0] == package and each[1].startswith(test + "/") for each in failed):
            continue  # It failed with its subtests.
        if file and "/" not in file and module and (package or "").startswith(module + "/"):
            file = package[len(module) + 1 :] + "/" + file
        found.append(finding(file, line, rule="test", message=message or text[:300], test=test, detail=text))
    return found or lint_findings("".join(built), "") or places(out, err)


def go_place(text):
    """Returns (file, line, message) of a failed test; of a panic the first frame outside of the runtime."""
    match = re.search(r"(?m)^\s+(\S+\.go):(\d+): (.*)$", text)
    if match:
        return match[1], int(match[2]), match[3]
    panic = re.search(r"(?m)^panic: (.*?)(?: \[recovered.*\])?$", text)
    if panic is None:
        return None, None, None
    frames = re.findall(r"(?m)^\t(\S+\.go):(\d+)", text)
    own = next((frame for frame in frames if "/src/runtime/" not in frame[0] and "/src/testing/" not in frame[0]), None)
    message = "panic: " + panic[1]
    return (own[0], int(own[1]), message) if own else (None, None, message)


def rust_failures(out, err):
    found = []
    for match in re.finditer(r"(?ms)^---- ([^\n]+?) stdout ----\n(.*?)(?=^---- |^failures:|\Z)", out):
        at = re.search(r"panicked at (?:'(.*?)', )?([^\s:]+):(\d+):(\d+):?\n", match[2])
        lines = [line.strip() for line in match[2][at.end() if at else 0 :].split("\n")]
        message = (at and at[1]) or "; ".join(line for line in lines if line and not line.startswith("note: "))
        place = (at[2], int(at[3]), int(at[4])) if at else (None, None, None)
        found.append(finding(*place, "test", message=message, test=match[1], detail=match[2]))
    for match in re.finditer(r"(?m)^error(?:\[(\w+)\])?: (.+)\n\s*--> (\S+?):(\d+):(\d+)$", err):
        each = finding(match[3], int(match[4]), int(match[5]), match[1], message=match[2])
        if each not in found:  # The library and its tests are compiled.
            found.append(each)
    return found or places(out, err)


def unittest_failures(out, err):
    found = []
    for match in re.finditer(r"(?ms)^(?:FAIL|ERROR): (\S+) \(([^)]*)\).*?\n-+\n(.*?)(?=^=+$|^-+$|\Z)", err):
        at = re.findall(r'File "([^"]+)", line (\d+)', match[3])
        lines = match[3].strip().split("\n")
        found.append(finding(at[-1][0] if at else None, int(at[-1][1]) if at else None, rule="test",
                             message=lines[-1] if lines else "", test=match[1], detail=match[3]))
    return found


# How runners of Node.js begin the part about a failed test: vitest, jest and mocha.
RUNNERS = (
    re.compile(r"(?ms)^ FAIL  (?P<file>\S+)(?: > (?P<test>[^\n]+)| \[ [^\n]* \])\n(?P<body>.*?)(?=^ FAIL  |^⎯|\Z)"),
    re.compile(r"(?ms)^  ● (?P<test>[^\n]+)\n\n(?P<body>.*?)(?=^  ● |^Test Suites:|\Z)"),
    re.compile(r"(?ms)^  \d+\) (?P<test>(?:[^\n]+\n){1,8}?)(?<=:\n)(?P<body>.*?)(?=^  \d+\) |\Z)"),
)
# Where what a test reports about values ends: differences, excerpts of programs and calls.
REPORTED = re.compile(r"^(?:- Expected$|\+ expected - actual$|>? *\d+ ?\||at |❯ )")


def runner_failures(text):
    found = []
    for match in (match for runner in RUNNERS for match in runner.finditer(text)):
        fields = match.groupdict()
        test = " ".join((fields["test"] or "").split()).removesuffix(":") or None
        lines = [line.strip() for line in fields["body"].split("\n")]
        calls = (PLACE.search(line) for line in lines if line.startswith(("at ", "❯ ")) and "node_modules" not in line and "node:" not in line)
        at = next((call for call in calls if call), None)
        end = next((index for index, line in enumerate(lines) if REPORTED.match(line)), len(lines))
        message = "; ".join(line for line in lines[:end] if line) or "failed"
        file = at["file"] if at else fields.get("file")
        each = finding(file, int(at["line"]) if at else None, rule="test", message=message, test=test, detail=fields["body"])
        if each not in found:  # Summaries repeat them.
            found.append(each)
    return found


def node_failures(out, err):
    """Failures of the test runner of Node.js, of TAP and of runners that print a cross before the names of tests."""
    text = out + "\n" + err
    found = runner_failures(text)
    if found:
        return found
    for match in re.finditer(r"(?ms)^(?:test at (?P<at>\S+:\d+:\d+)\n)?[ ]*(?:✖|✗|×|not ok \d+ -) (?P<test>[^\n]+?)(?: \([\d.]+m?s\))?\n(?P<body>(?:[ ]+[^\n]*\n|\n)*)", text):
        if match["test"].startswith("failing tests"):
            continue
        body = match["body"]
        at = next((m for m in PLACE.finditer(body) if "node:internal" not in m["file"]), None)
        if match["at"]:
            at = PLACE.match(match["at"]) or at
        lines = [line.strip() for line in body.split("\n") if line.strip()]
        if any(each.get("test") == match["test"] for each in found):
            found = [each for each in found if each.get("test") != match["test"] or each.get("detail")]
            if any(each.get("test") == match["test"] for each in found):
                continue
        found.append(finding(at["file"].removeprefix("file://") if at else None, int(at["line"]) if at else None, rule="test",
                             message=lines[0] if lines else "failed", test=match["test"], detail=body or None))
    return found or places(out, err)
