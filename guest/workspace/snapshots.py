"""Snapshots of all files, in a repository of their own: the repository of the project is neither read nor changed."""

import os
import re
import shutil
import subprocess
import threading

NAME = re.compile(r"^[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}$")
STORE = ".glovebox/snapshots.git"
DIFF_MAX = 512 * 1024
GIT_SECONDS = 300
SNAPSHOTS_MAX = 200


class Snapshots:
    def __init__(self, root):
        self.root = root
        self.turn = threading.Lock()

    def git(self, *arguments, index="index", input=None, limit=None):
        git = need("git", HOW["git"])
        store = os.path.join(self.root.path, STORE)
        environment = {
            "PATH": os.environ.get("PATH", "/usr/bin:/bin"), "HOME": "/nonexistent", "LC_ALL": "C",
            "GIT_DIR": store, "GIT_WORK_TREE": self.root.path, "GIT_INDEX_FILE": os.path.join(store, index),
            "GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": "/dev/null", "GIT_TERMINAL_PROMPT": "0",
            **{f"GIT_{who}_{what}": value for who in ("AUTHOR", "COMMITTER") for what, value in (("NAME", "glovebox"), ("EMAIL", "glovebox@localhost"))},
        }
        options = ["-c", "core.hooksPath=/dev/null", "-c", "core.fsmonitor=false", "-c", "gc.auto=0", "-c", "core.autocrlf=false",
                   "-c", "core.quotePath=false", "-c", "advice.addEmbeddedRepo=false", "-c", "core.safecrlf=false",
                   "-c", "core.untrackedCache=false", "-c", "safe.directory=*", "-c", "core.looseCompression=1"]
        process = subprocess.Popen([git, *options, *arguments], cwd=self.root.path, env=environment,
                                   stdin=subprocess.PIPE if input else subprocess.DEVNULL,
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True)
        timer = threading.Timer(GIT_SECONDS, kill_group, (process,))
        timer.daemon = True
        timer.start()
        try:
            if limit is None:
                out, err = process.communicate(input)
                partial = False
            else:
                out = process.stdout.read(limit + 1)
                partial = len(out) > limit
                if partial:
                    kill_group(process)
                err = process.stderr.read(4096)
                process.wait()
        finally:
            timer.cancel()
        if process.returncode not in (0, None) and not partial:
            message = err.decode("utf-8", "replace").strip()
            if "No space left" in message or "quota" in message:
                raise Refused("the disk of the workspace is full: delete files or snapshots and retry.")
            raise Refused(f"git {arguments[0]} failed: {message[-500:]}")
        text = out[:limit].decode("utf-8", "replace") if limit else out.decode("utf-8", "replace")
        return (text, partial) if limit else text.rstrip("\n")

    def prepare(self):
        store = os.path.join(self.root.path, STORE)
        parent = os.path.dirname(store)
        for path in (parent, store):
            if os.path.islink(path):
                raise Refused(f"{path} is a symbolic link; remove it to use snapshots.")
        need("git", HOW["git"])
        if not os.path.isdir(os.path.join(store, "objects")):
            os.makedirs(parent, exist_ok=True)
            done = subprocess.run([which("git"), "init", "--quiet", "--bare", store], capture_output=True, cwd="/",
                                  env={"PATH": os.environ.get("PATH", "/usr/bin:/bin"), "GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": "/dev/null"})
            if done.returncode != 0:
                raise Refused(f"git init failed: {done.stderr.decode('utf-8', 'replace').strip()[-500:]}")
        # The attributes of the project must not change what is stored: files are kept byte for byte.
        os.makedirs(os.path.join(store, "info"), exist_ok=True)
        with open(os.path.join(store, "info", "attributes"), "w", encoding="ascii") as file:
            file.write("* -text -ident -filter !eol !working-tree-encoding\n")
        with open(os.path.join(store, "info", "exclude"), "w", encoding="ascii") as file:
            file.write("/.glovebox/\n")

    def tree(self, index):
        """Stores the files as they are now. Returns the name of the tree."""
        self.git("add", "--all", "--force", "--", ".", ":(exclude,top).glovebox", index=index)
        return self.git("write-tree", index=index)

    def require(self, name):
        if not NAME.match(name):
            raise Refused("name must match ^[A-Za-z0-9_][A-Za-z0-9_.-]*$ and have at most 100 characters")
        if name.endswith((".lock", ".")) or ".." in name:
            raise Refused("name must not contain .. or end with . or .lock")

    def commit_of(self, name):
        self.require(name)
        self.prepare()
        found = self.git("for-each-ref", "--format=%(objectname)", f"refs/sandbox/snapshots/{name}")
        if not found:
            names = [each["name"] for each in self.all()]
            raise Refused(f"unknown snapshot: {name}; snapshots: {', '.join(names[:20]) or 'none'}")
        return found

    def create(self, name, description=""):
        self.require(name)
        with self.turn:
            self.prepare()
            if len(self.all()) >= SNAPSHOTS_MAX and not any(each["name"] == name for each in self.all()):
                raise Refused(f"there are {SNAPSHOTS_MAX} snapshots, which is the limit. Reuse the name of an old one.")
            commit = self.git("commit-tree", self.tree("index"), "-m", description or name)
            self.git("update-ref", f"refs/sandbox/snapshots/{name}", commit)
        return {"name": name, "commit": commit}

    def all(self):
        format_ = "%(refname:lstrip=3)%09%(objectname)%09%(creatordate:unix)%09%(contents:subject)"
        lines = self.git("for-each-ref", "--sort=-creatordate", f"--format={format_}", "refs/sandbox/snapshots/")
        fields = [line.split("\t", 3) for line in lines.split("\n") if line]
        return [{"name": name, "commit": commit, "time": int(time), "description": text} for name, commit, time, text in fields]

    def list(self):
        with self.turn:
            self.prepare()
            return {"snapshots": self.all()}

    def diff(self, name):
        with self.turn:
            commit = self.commit_of(name)
            now = self.tree("diff-index")
            text, partial = self.git("diff", "--no-ext-diff", "--no-textconv", "--no-color", commit, now, "--", limit=DIFF_MAX)
            stat = self.git("diff", "--no-ext-diff", "--shortstat", commit, now, "--")
        return {"diff": text, "partial": partial, "summary": stat.strip()}

    def restore(self, name):
        with self.turn:
            commit = self.commit_of(name)
            before = self.tree("index")
            changed = self.git("diff", "--name-status", "--no-renames", before, commit, "--")
            self.git("read-tree", "--reset", "-u", commit)
        return {"changed": [line for line in changed.split("\n") if line]}

    def delete_all(self):
        with self.turn:
            shutil.rmtree(os.path.join(self.root.path, STORE), ignore_errors=True)
