"""Runs a command in a pseudo-terminal, plays steps to it, and prints how it ended as JSON.

Arguments: steps as JSON, then the command. A step is one of
  {"expect": text}              waits until the output contains the text after the last match
  {"send": text}                types the text
  {"size": [rows, columns]}     changes the size of the terminal
  {"repeat": text, "until": x}  types the text again and again until the output contains x
  {"pause": true}               prints a line and waits for one
"""
import fcntl, json, os, select, struct, sys, termios, time

steps, command = json.loads(sys.argv[1]), sys.argv[2:]
master, slave = os.openpty()


def resize(rows, columns):
    fcntl.ioctl(master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))


resize(40, 100)
before = termios.tcgetattr(slave)
pid = os.fork()
if pid == 0:
    os.setsid()
    fcntl.ioctl(slave, termios.TIOCSCTTY, 0)
    for fd in (0, 1, 2):
        os.dup2(slave, fd)
    os.closerange(3, 64)
    os.execvp(command[0], command)

output, position, status = "", 0, None


def read(seconds):
    global output
    if select.select([master], [], [], seconds)[0]:
        output += os.read(master, 65536).decode(errors="replace")


def ended():
    global status
    if status is None:
        found, value = os.waitpid(pid, os.WNOHANG)
        if found:
            status = os.waitstatus_to_exitcode(value)
    return status is not None


def matches(text):
    global position
    at = output.find(text, position)
    if at >= 0:
        position = at + len(text)
    return at >= 0


def expect(text, again=lambda: None):
    late = time.monotonic() + 60
    while not matches(text):
        if ended() or time.monotonic() > late:
            sys.exit(f"{text!r} did not come, only {output[position:]!r}")
        again()
        read(0.2)


for step in steps:
    if "expect" in step:
        expect(step["expect"])
    elif "send" in step:
        os.write(master, step["send"].encode())
    elif "size" in step:
        resize(*step["size"])
    elif "repeat" in step:
        expect(step["until"], lambda: os.write(master, step["repeat"].encode()))
    else:
        print("paused", flush=True)
        sys.stdin.readline()
while not ended():
    read(0.1)
read(0)
print(json.dumps({"code": status, "output": output, "restored": termios.tcgetattr(slave) == before}))
