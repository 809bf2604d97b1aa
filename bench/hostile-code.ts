/** Attacks by code in runs. Each run is short, and another one follows. */
import { type Attack, repeat, runCode } from './hostile-attack.ts'

/** As many runs as an organization can have at once by default. */
const runsAtOnce = 4

const inRuns =
  (code: string, more: object = {}): Attack =>
  (target, tally, stop) =>
    repeat(tally, stop, runsAtOnce, (worker) =>
      runCode(target, code, 'thread' in more ? { thread_id: `t${worker}` } : more),
    )

/** What an ordinary neighbor costs: the other attacks by code are to be compared with this. */
const computes = 'while True: pass'

const readsMounts = `
import os
for _ in range(24):
    if os.fork() == 0: break
file = os.open('/proc/self/mountinfo', os.O_RDONLY)
while True:
    os.lseek(file, 0, 0)
    while os.read(file, 65536): pass
`

/** Questions to the kernel whose answers are never read. */
const asksNetlink = `
import socket, struct
request = struct.pack('=IHHII', 20, 18, 0x301, 1, 0) + b'\\0' * 4
while True:
    sockets = [socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0) for _ in range(200)]
    for each in sockets:
        each.setblocking(False)
        try:
            for _ in range(100): each.send(request)
        except OSError: pass
`

/** Drops files of the image from the page cache, where the kernel permits it, and reads them again. */
const dropsPages = `
import glob, os
files = [name for name in glob.glob('/usr/lib/**/*.so*', recursive=True) if os.path.isfile(name)][:2000]
while True:
    for name in files:
        try: file = os.open(name, os.O_RDONLY)
        except OSError: continue
        os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
        os.read(file, 1 << 20)
        os.close(file)
`

const forks = `
import os
while True:
    try:
        if os.fork() == 0: os._exit(0)
        os.waitpid(-1, os.WNOHANG)
    except OSError: pass
`

const fillsMemory = `
import os
while True:
    if os.fork() == 0:
        kept = []
        while True: kept.append(bytearray(1 << 20))
    os.wait()
`

const syncsFiles = `
import os
n = 0
while True:
    with open(f'file-{n % 50}', 'wb') as file:
        file.write(b'x' * 65536)
        os.fsync(file.fileno())
    n += 1
`

/** Connections to addresses and names that its policy does not allow, and questions to the name server. */
const connects = `
import socket
n = 0
while True:
    n += 1
    for family, address in ((socket.AF_INET, ('10.1.2.3', 80)), (socket.AF_INET, ('127.0.0.2', n % 60000 + 1))):
        try:
            with socket.socket(family) as each:
                each.settimeout(0.2)
                each.connect(address)
                each.send(b'GET / HTTP/1.1\\r\\n\\r\\n')
        except OSError: pass
    try: socket.getaddrinfo(f'name-{n}.invalid', 80)
    except OSError: pass
`

export const codeAttacks: Readonly<Record<string, Attack>> = {
  'runs that compute': inRuns(computes),
  'readers of mountinfo': inRuns(readsMounts),
  'netlink answers not read': inRuns(asksNetlink),
  'pages dropped from the cache': inRuns(dropsPages),
  'fork loops': inRuns(forks),
  'memory filled again and again': inRuns(fillsMemory),
  'output floods': inRuns('import os\nwhile True: os.write(1, b"x" * 65536)'),
  'files synced in threads': inRuns(syncsFiles, { thread: true }),
  'connections that are refused': inRuns(connects, { network: true }),
}
