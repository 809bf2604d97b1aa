"""Looks for everything that a machine shows to a process, and prints it as JSON. Used within a jail and without."""
import json, os, socket, subprocess, sys

asked = json.loads(sys.argv[1])


def attempt(action):
    try:
        return action()
    except OSError as error:
        return type(error).__name__ if error.errno is None else os.strerror(error.errno)


def read(path):
    with open(path, 'rb') as file:
        return file.read(1 << 20).decode('utf-8', 'replace')


def connect(family, address, kind=socket.SOCK_STREAM):
    with socket.socket(family, kind) as one:
        one.settimeout(5)
        one.connect(address)
        return 'connected'


def files_with(word, roots):
    """Every readable file below the roots that holds the word, in its name or its content."""
    found = []
    for root in roots:
        for directory, folders, names in os.walk(root):
            folders[:] = [name for name in folders if not os.path.ismount(os.path.join(directory, name)) or root == '/']
            if directory == '/':
                folders[:] = [name for name in folders if name not in ('proc', 'sys', 'usr')]
            for name in names:
                path = os.path.join(directory, name)
                if word in name:
                    found.append(path)
                elif os.path.isfile(path) and not os.path.islink(path) and os.path.getsize(path) < 1 << 20:
                    text = attempt(lambda: read(path))
                    if word in text and '/proc/' not in path and path != sys.argv[0]:
                        found.append(path)
    return found


def entries_with_content(root):
    """What of a directory tells something: files that are not empty, folders that hold anything."""
    told = []
    for name in sorted(os.listdir(root)):
        path = os.path.join(root, name)
        if name.isdigit():
            continue
        content = attempt(lambda: os.listdir(path)) if os.path.isdir(path) else attempt(lambda: read(path))
        if content and content not in ('Permission denied', 'No such file or directory', 'Input/output error'):
            told.append(name)
    return told


print(json.dumps({
    'environment': dict(os.environ),
    'pids': sorted(int(name) for name in os.listdir('/proc') if name.isdigit()),
    'known_pids': {pid: attempt(lambda: os.kill(pid, 0) or 'there') for pid in asked['pids']},
    'environ_of_known': {pid: attempt(lambda: read(f'/proc/{pid}/environ').count(asked['canary'])) for pid in asked['pids']},
    'init': {name: attempt(lambda: read(f'/proc/{asked["init"]}/{name}') and 'read') for name in ('environ', 'maps', 'mem', 'auxv', 'stack', 'syscall', 'io')},
    'links_of_init': {name: attempt(lambda: os.readlink(f'/proc/{asked["init"]}/{name}') and 'read') for name in ('root', 'cwd', 'exe', 'ns/mnt', 'ns/net')},
    'descriptors_of_init': attempt(lambda: os.listdir(f'/proc/{asked["init"]}/fd')),
    'canary_files': files_with(asked['canary'], asked['roots']),
    'known_files': {path: attempt(lambda: os.path.getsize(path)) for path in asked['files']},
    'tcp': {port: attempt(lambda: connect(socket.AF_INET, ('127.0.0.1', port))) for port in asked['ports']},
    'tcp6': {port: attempt(lambda: connect(socket.AF_INET6, ('::1', port))) for port in asked['ports']},
    'addresses': {f'{host}:{port}': attempt(lambda: connect(socket.AF_INET6 if ':' in host else socket.AF_INET, (host, port))) for host, port in asked['addresses']},
    'datagrams': {host: attempt(lambda: connect(socket.AF_INET, (host, 53), socket.SOCK_DGRAM)) for host in asked['datagrams']},
    'unix': {name: attempt(lambda: connect(socket.AF_UNIX, '\0' + name[1:] if name[0] == '@' else name)) for name in asked['unix']},
    'names': {name: attempt(lambda: socket.gethostbyname(name)) for name in asked['names']},
    'interfaces': [name for _, name in socket.if_nameindex()],
    'host_name': socket.gethostname(),
    'listening': [line.split()[1] for line in read('/proc/net/tcp').splitlines()[1:]],
    'unix_names': [line.split()[-1] for line in read('/proc/net/unix').splitlines()[1:] if len(line.split()) > 7],
    'mountinfo': read('/proc/self/mountinfo'),
    'cgroup': read('/proc/self/cgroup'),
    'facts': {name: attempt(lambda: read('/proc/' + name)) for name in asked['facts']},
    'proc': entries_with_content('/proc') if asked['jailed'] else [],
    'sys': sorted(os.path.join(at, name) for at, _, names in os.walk('/sys') for name in names) if asked['jailed'] else [],
    'dev': sorted(os.listdir('/dev')),
    'root': sorted(os.listdir('/')),
    'etc': sorted(os.listdir('/etc')),
    'run': attempt(lambda: sorted(os.listdir('/run'))),
    'kernel_log': attempt(lambda: os.listdir('/proc/sys/kernel') and read('/dev/kmsg')) if asked['jailed'] else '',
}))
