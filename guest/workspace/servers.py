"""Speaks to language servers that are installed in the sandbox. Each is started when it is first needed."""

import json
import os
import subprocess
import threading
import time
import urllib.parse

SERVERS = {
    "typescript": ("typescript-language-server", ("--stdio",), "npm install -g typescript typescript-language-server"),
    "python": ("pyright-langserver", ("--stdio",), "npm install -g pyright"),
    "go": ("gopls", ("serve",), "go install golang.org/x/tools/gopls@latest"),
    "rust": ("rust-analyzer", (), "rustup component add rust-analyzer"),
}
SERVED = {"javascript": "typescript"}
IDLE_SECONDS = 600
ANSWER_SECONDS = 60
MESSAGE_MAX = 32 * 1024 * 1024
OPEN_FILES_MAX = 64
STARTS_MAX = 5
# https://rust-analyzer.github.io/book/contributing/lsp-extensions.html#server-status
STATUS = "experimental/serverStatus"
# The server has begun to read other content meanwhile: https://microsoft.github.io/language-server-protocol/specification
CONTENT_MODIFIED = -32801
ATTEMPTS_MAX = 5


class LanguageServer:
    """One server. Requests are answered in any order; it is stopped after ten idle minutes."""

    def __init__(self, root, command, language):
        self.root = root
        self.language = language
        self.process = subprocess.Popen(command, cwd=root.path, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=subprocess.DEVNULL, start_new_session=True)
        self.lock = threading.Lock()
        self.waiting = {}
        self.next_id = 0
        self.versions = {}
        self.used = time.monotonic()
        # Until it has read the project, rust-analyzer answers with nothing. The others answer when they have.
        self.is_ready = threading.Event()
        self.has_ended = False
        if language != "rust":
            self.is_ready.set()
        threading.Thread(target=self.read, daemon=True).start()
        uri = self.uri("")
        self.request("initialize", {
            "initializationOptions": {"tsserver": {"useSyntaxServer": "never"}},
            "processId": os.getpid(), "rootUri": uri, "workspaceFolders": [{"uri": uri, "name": "workspace"}],
            "capabilities": {
                "textDocument": {"definition": {"linkSupport": False}, "references": {}, "rename": {"prepareSupport": False},
                                 "documentSymbol": {"hierarchicalDocumentSymbolSupport": True}},
                "workspace": {"workspaceEdit": {"documentChanges": True}, "configuration": True, "workspaceFolders": True},
                "experimental": {"serverStatusNotification": True},
            },
        })
        self.notify("initialized", {})

    def uri(self, path):
        return "file://" + urllib.parse.quote(os.path.join(self.root.path, path).rstrip("/"))

    def path(self, uri):
        full = urllib.parse.unquote(urllib.parse.urlparse(uri).path)
        inside = self.root.below(full)
        return full if inside is None else inside

    def alive(self):
        return self.process.poll() is None

    def send(self, message):
        data = json.dumps({"jsonrpc": "2.0", **message}).encode()
        with self.lock:
            try:
                self.process.stdin.write(b"Content-Length: %d\r\n\r\n" % len(data) + data)
                self.process.stdin.flush()
            except (OSError, ValueError):
                pass

    def notify(self, method, params):
        self.send({"method": method, "params": params})

    def ask(self, method, params):
        """Returns the answer to a question about the project, once the server has read it."""
        self.used = time.monotonic()
        if not self.is_ready.wait(ANSWER_SECONDS):
            raise Refused(f"the language server of {self.language} is still reading the project; retry later")
        for attempt in range(ATTEMPTS_MAX):
            if attempt > 0:
                time.sleep(0.2 * attempt)
            answer = self.reply(method, params)
            if (answer.get("error") or {}).get("code") != CONTENT_MODIFIED:
                break
        return result_of(method, answer)

    def request(self, method, params):
        return result_of(method, self.reply(method, params))

    def reply(self, method, params):
        with self.lock:
            self.next_id += 1
            number = self.next_id
            entry = self.waiting[number] = [threading.Event(), None]
            if self.has_ended:
                entry[0].set()
        self.used = time.monotonic()
        self.send({"id": number, "method": method, "params": params})
        entry[0].wait(ANSWER_SECONDS)
        with self.lock:
            self.waiting.pop(number, None)
        if entry[1] is None:
            if self.alive():
                raise Refused(f"the language server of {self.language} did not answer within {ANSWER_SECONDS} seconds; retry later")
            raise Refused(f"the language server of {self.language} exited; it is restarted with the next call")
        return entry[1]

    def read(self):
        out = self.process.stdout
        try:
            while True:
                length = None
                while True:
                    line = out.readline(4096)
                    if not line:
                        return
                    if line in (b"\r\n", b"\n"):
                        break
                    if line.lower().startswith(b"content-length:"):
                        length = int(line.split(b":")[1])
                if length is None or length > MESSAGE_MAX:
                    return
                message = json.loads(out.read(length))
                entry = self.waiting.get(message.get("id")) if "method" not in message else None
                if entry:
                    entry[1] = message
                    entry[0].set()
                elif "method" in message and "id" in message:
                    result = [None] * len(message.get("params", {}).get("items", [])) if message["method"] == "workspace/configuration" else None
                    self.send({"id": message["id"], "result": result})
                elif message.get("method") == STATUS:
                    if message["params"].get("quiescent"):
                        self.is_ready.set()
                    else:
                        self.is_ready.clear()
        except (OSError, ValueError, KeyError, AttributeError, TypeError):
            pass
        finally:
            self.stop()
            with self.lock:
                self.has_ended = True
                for entry in self.waiting.values():
                    entry[0].set()
            self.is_ready.set()

    def open(self, path, data):
        """Hands the current text of a file to the server."""
        text = data.decode("utf-8", "replace")
        uri = self.uri(path)
        known = self.versions.get(path)
        if known is None:
            if len(self.versions) >= OPEN_FILES_MAX:
                oldest = next(iter(self.versions))
                del self.versions[oldest]
                self.notify("textDocument/didClose", {"textDocument": {"uri": self.uri(oldest)}})
            self.versions[path] = (1, text)
            names = {".ts": "typescript", ".tsx": "typescriptreact", ".jsx": "javascriptreact", ".py": "python", ".go": "go", ".rs": "rust"}
            language = names.get(os.path.splitext(path)[1], "javascript")
            self.notify("textDocument/didOpen", {"textDocument": {"uri": uri, "languageId": language, "version": 1, "text": text}})
        elif known[1] != text:
            version = known[0] + 1
            self.versions[path] = (version, text)
            self.notify("textDocument/didChange", {"textDocument": {"uri": uri, "version": version}, "contentChanges": [{"text": text}]})

    def stop(self):
        kill_group(self.process)
        self.process.wait()


def result_of(method, answer):
    if answer.get("error"):
        raise Refused(f"{method}: {str(answer['error'].get('message'))[:500]}")
    return answer.get("result")


class LanguageServers:
    def __init__(self, root):
        self.root = root
        self.running = {}
        self.starts = {}
        self.lock = threading.Lock()
        threading.Thread(target=self.stop_idle, daemon=True).start()

    def how(self, language):
        """Returns how to install the server of a language, or None where none is known."""
        row = SERVERS.get(SERVED.get(language, language))
        return None if row is None else f"Install one in the sandbox with: {row[2]}"

    def get(self, language):
        """Returns a running server, or None if it is not installed."""
        language = SERVED.get(language, language)
        row = SERVERS.get(language)
        program = row and which(row[0])
        if program is None:
            local = row and os.path.join(self.root.path, "node_modules", ".bin", row[0])
            if not local or not os.access(local, os.X_OK):
                return None
            program = local
        with self.lock:
            server = self.running.get(language)
            if server is not None and server.alive():
                return server
            recent = [at for at in self.starts.get(language, []) if time.monotonic() - at < 300]
            if len(recent) >= STARTS_MAX:
                raise Refused(f"the language server of {language} exited {STARTS_MAX} times within 5 minutes; it is not restarted now")
            self.starts[language] = recent + [time.monotonic()]
            server = self.running[language] = LanguageServer(self.root, [program, *row[1]], language)
            return server

    def stop_idle(self):
        while True:
            time.sleep(30)
            for language, server in list(self.running.items()):
                if time.monotonic() - server.used > IDLE_SECONDS:
                    with self.lock:
                        if self.running.get(language) is server:
                            del self.running[language]
                    server.stop()

    def stop(self):
        for server in list(self.running.values()):
            server.stop()
