"""Serves requests over descriptor 3: each frame is a length of four bytes and one JSON object."""

import json
import os
import queue
import struct
import sys
import threading
import traceback

# A module that is rewritten with the same size within the same second must not be imported as it was before.
os.environ.setdefault("PYTHONDONTWRITEBYTECODE", "1")

CHANNEL = 3
# The runner keeps 8 MiB of replies; an image of 5 MiB has 6.7 MiB in base64.
FRAME_MAX = 7 * 1024 * 1024 + 512 * 1024
CALLS_MAX = 32


class Agent:
    def __init__(self, path):
        self.root = Root(path)
        self.files = Files(self.root)
        self.search = Search(self.root)
        self.shells = Shells(self.root)
        self.project = Project(self.root)
        self.snapshots = Snapshots(self.root)
        self.code = Code(self.root, self.search, self.files)
        self.output = threading.Lock()
        self.places = threading.BoundedSemaphore(CALLS_MAX)
        self.requests = queue.SimpleQueue()
        # One place for each thread that waits for a request.
        self.waiting = threading.Semaphore(0)
        # What each operation calls, and whether it takes the reader.
        self.operations = {
            "read": (self.files.read, True),
            "write": (self.write, True),
            "edit": (self.edit, True),
            "forget": (self.forget, True),
            "glob": (self.search.glob, False),
            "grep": (self.search.grep, False),
            "bash": (self.shells.run, True),
            "start": (self.shells.start, True),
            "output": (self.shells.output, False),
            "kill": (self.shells.kill, False),
            "events": (self.shells.events, False),
            "tests": (self.project.tests, True),
            "failing_tests": (self.project.failing_tests, True),
            "last_failures": (self.project.last_failures, True),
            "lint": (self.project.lint, False),
            "typecheck": (self.project.typecheck, False),
            "script": (self.project.run_script, False),
            "snapshot_create": (self.snapshots.create, False),
            "snapshot_list": (self.snapshots.list, False),
            "snapshot_diff": (self.snapshots.diff, False),
            "snapshot_restore": (self.snapshots.restore, False),
            "symbols": (self.code.symbols, False),
            "search_code": (self.code.search_code, False),
            "definition": (self.code.definition, False),
            "references": (self.code.references, False),
            "rename": (self.code.rename, True),
            "tests_covering": (self.code.tests_covering, False),
            "edit_function": (self.edit_function, True),
            "render": (self.code.render, False),
        }

    def edit(self, reader, file_path, edits, check=True):
        done = edit(self.files, reader, file_path, edits)
        return {**done, "findings": self.project.of_file(done["path"]) if check else None}

    def write(self, reader, file_path, content, check=True):
        done = self.files.write(reader, file_path, content)
        return {**done, "findings": self.project.of_file(done["path"]) if check else None}

    def edit_function(self, reader, file_path, how, name, text):
        data = self.files.load(file_path)[2]
        changed = self.code.changed_function(data, file_path, how, name, text)
        if self.files.seen.get(reader, "/".join(self.root.parts(file_path))) is None:
            raise Refused(f"refusing to edit {file_path}: Read it first")
        return self.write(reader, file_path, changed)

    def forget(self, reader):
        self.files.seen.forget(reader)
        self.shells.states.pop(reader, None)
        return {}

    def answer(self, request):
        THIS_CALL.id = request["id"]
        try:
            operation, takes_reader = self.operations[request["op"]]
            arguments = request["args"]
            value = operation(request["reader"], **arguments) if takes_reader else operation(**arguments)
            reply = {"id": request["id"], "ok": value}
        except Refused as refusal:
            reply = {"id": request["id"], "refused": str(refusal)}
        except UnicodeEncodeError:
            reply = {"id": request["id"], "refused": "the text contains half of a surrogate pair, which is not valid Unicode"}
        except OSError as error:
            refusal = explain(error, "the file")
            kind = "refused" if isinstance(refusal, Refused) else "fault"
            reply = {"id": request["id"], kind: str(refusal)}
        except MemoryError:
            reply = {"id": request["id"], "refused": "the sandbox has too little memory for this file"}
        except Exception:
            reply = {"id": request["id"], "fault": traceback.format_exc()[-4000:]}
        finally:
            CALLS.pop(request["id"], None)
        self.send(reply)

    def work(self):
        while True:
            request = self.requests.get()
            try:
                self.answer(request)
            except Exception:
                traceback.print_exc()
            # In this order, so that there are never more threads than places.
            self.waiting.release()
            self.places.release()

    def send(self, reply):
        data = json.dumps(reply, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")
        if len(data) > FRAME_MAX:
            data = json.dumps({"id": reply["id"], "refused": "the result is too large"}).encode()
        view = memoryview(struct.pack(">I", len(data)) + data)
        with self.output:
            while view:
                view = view[os.write(CHANNEL, view) :]

    def serve(self):
        self.send({"id": 0, "ok": {"root": self.root.path}})
        while True:
            header = receive(4)
            if header is None:
                break
            data = receive(struct.unpack(">I", header)[0])
            if data is None:
                break
            request = json.loads(data)
            if "cancel" in request:
                cancel_call(request["cancel"])
                continue
            self.places.acquire()
            self.requests.put(request)
            # Starting a thread takes longer than many operations, so threads are kept.
            if not self.waiting.acquire(blocking=False):
                threading.Thread(target=self.work, daemon=True).start()
        self.shells.kill_all()
        self.code.stop()
        os._exit(0)


def receive(count):
    """Returns this many bytes, or None at the end."""
    parts = []
    while count > 0:
        chunk = os.read(CHANNEL, min(count, 1 << 20))
        if not chunk:
            return None
        parts.append(chunk)
        count -= len(chunk)
    return b"".join(parts)


sys.setrecursionlimit(2000)
os.set_inheritable(CHANNEL, False)
try:
    agent = Agent(WORKSPACE)
except OSError as error:
    data = json.dumps({"id": 0, "refused": f"the workspace {WORKSPACE} cannot be opened: {error.strerror}"}).encode()
    os.write(CHANNEL, struct.pack(">I", len(data)) + data)
    os._exit(1)
agent.serve()
