"""Reads findings from the output of test runners and checkers."""

import json
import os
import re
import xml.etree.ElementTree as xml

PLACE = re.compile(r"(?P<file>[^\s:()\[\]'\"]+\.[A-Za-z]{1,4}):(?P<line>\d+)(?::(?P<column>\d+))?")
LINTED = re.compile(r"^(?P<file>[^\s:][^:]*):(?P<line>\d+):(?:(?P<column>\d+):)?\s*(?P<message>.+)$")
TSC = re.compile(r"^(?P<file>[^\s(]+)\((?P<line>\d+),(?P<column>\d+)\): (?P<severity>error|warning) (?P<rule>TS\d+): (?P<message>.+)$")


def finding(file=None, line=None, column=None, rule=None, severity="error", message="", test=None, detail=None):
    found = {"file": file, "line": line, "column": column, "rule": rule, "severity": severity,
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
                finding(os.path.relpath(file["filePath"]), m.get("line"), m.get("column"), m.get("ruleId"),
                        "error" if m.get("severity") == 2 else "warning", m.get("message", ""))
                for file in report for m in file.get("messages", [])
            ]
    except (ValueError, KeyError, TypeError, AttributeError):
        pass
    found = []
    for line in (out + "\n" + err).split("\n"):
        match = TSC.match(line) or LINTED.match(line)
        if not match:
            continue
        fields = match.groupdict()
        message = fields["message"]
        rule = fields.get("rule")
        ruff = re.match(r"(?:(error|warning|note): )?(?:([A-Z]{1,4}\d{2,4}) )?(.*)$", message)
        severity = fields.get("severity") or (ruff and ruff[1]) or "error"
        found.append(finding(fields["file"], int(fields["line"]), int(fields["column"] or 0) or None,
                             rule or (ruff and ruff[2]), severity, ruff[3] if ruff and not rule else message))
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
            stem = [part for part in module if not part[:1].isupper()]
            classes = [part for part in module if part[:1].isupper()]
            test = "::".join(["/".join(stem) + ".py", *classes, case.get("name", "")]) if stem else case.get("name")
            found.append(finding(file, int(at["line"]) if at else None, rule="test", message=failure.get("message") or text[:300],
                                 test=test, detail=text))
    return found


def go_failures(out, err):
    output = {}
    failed = []
    for line in out.split("\n"):
        try:
            event = json.loads(line)
        except ValueError:
            continue
        key = (event.get("Package"), event.get("Test"))
        if event.get("Action") == "output":
            output.setdefault(key, []).append(event.get("Output", ""))
        elif event.get("Action") == "fail" and event.get("Test"):
            failed.append(key)
    found = []
    for package, test in failed:
        text = "".join(output.get((package, test), []))
        match = re.search(r"(?m)^\s+(\S+\.go):(\d+): (.*)$", text)
        found.append(finding(match[1] if match else None, int(match[2]) if match else None, rule="test",
                             message=match[3] if match else text[:300], test=test, detail=text))
    return found or places(out, err)


def rust_failures(out, err):
    found = []
    for match in re.finditer(r"(?ms)^---- (\S+) stdout ----\n(.*?)(?=^---- |^failures:|\Z)", out):
        at = re.search(r"panicked at (?:'.*?', )?(\S+?):(\d+):(\d+)", match[2])
        found.append(finding(at[1] if at else None, int(at[2]) if at else None, int(at[3]) if at else None, "test",
                             message=match[2].strip().split("\n")[-1], test=match[1], detail=match[2]))
    return found or places(out, err)


def unittest_failures(out, err):
    found = []
    for match in re.finditer(r"(?ms)^(?:FAIL|ERROR): (\S+) \(([^)]*)\).*?\n-+\n(.*?)(?=^=+$|^-+$|\Z)", err):
        at = re.findall(r'File "([^"]+)", line (\d+)', match[3])
        lines = match[3].strip().split("\n")
        found.append(finding(at[-1][0] if at else None, int(at[-1][1]) if at else None, rule="test",
                             message=lines[-1] if lines else "", test=match[1], detail=match[3]))
    return found


def node_failures(out, err):
    """Failures of the test runner of Node.js, of TAP and of runners that print a cross before the names of tests."""
    text = out + "\n" + err
    found = []
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
