"""Tries to reach the cgroups of the machine below the files that cover them; prints what each attempt finds, as JSON.

argv[1] is the covered directory."""
import ctypes, json, os, sys

place = sys.argv[1]
libc = ctypes.CDLL(None, use_errno=True)
AT_FDCWD, OPEN_TREE_CLONE, MNT_DETACH, MS_BIND, MS_MOVE, CLONE_NEWNS = -100, 1, 2, 4096, 8192, 0x20000


def call(function, *words):
    ctypes.set_errno(0)
    answer = getattr(libc, function)(*words)
    return 'done' if answer >= 0 else os.strerror(ctypes.get_errno())


def is_reached():
    """Whether a file of a real hierarchy is at the place, whichever way leads there."""
    ways = [place, place + '/../' + os.path.basename(place), '/proc/self/root' + place, '/proc/1/root' + place]
    return any(os.path.lexists(way + '/cgroup.procs') for way in ways)


name = place.encode()
attempts = {
    'by its names': lambda: '',
    'a new mount of it': lambda: call('mount', b'none', b'/dev/shm', b'cgroup2', 0, None),
    'a bind of its parent': lambda: call('mount', os.path.dirname(name), b'/dev/shm', None, MS_BIND, None),
    'moving the cover': lambda: call('mount', name, b'/dev/shm', None, MS_MOVE, None),
    'open_tree': lambda: call('syscall', 428, AT_FDCWD, name, OPEN_TREE_CLONE),
    'unshare': lambda: call('unshare', CLONE_NEWNS),
    'chroot': lambda: call('chroot', name),
    'umount': lambda: call('umount2', name, 0),
    'a detached umount': lambda: call('umount2', name, MNT_DETACH),
}
for attempt, make in attempts.items():
    if os.fork() == 0:
        said = make()
        os.write(1, (json.dumps({attempt: [said, is_reached()]}) + '\n').encode())
        os._exit(0)
    os.wait()
