/** Attacks on the limits of a run or a sandbox. Ways are those of test/security/attacks/hold-memory.c. */

/** Ways to make the kernel hold memory, all charged to the limit; the amount held when the limit ends the run. */
export const counted = [
  'heap',
  'tmp',
  'shm',
  'home',
  'memfd',
  'segments',
  'messages',
  'pipes',
  'unix',
  'unix-datagrams',
]
/** With cgroup v1 the buffers of these have a separate limit beside that of memory. */
export const sockets = ['tcp', 'udp']
/** Charged to no cgroup; the runner watches them. */
export const uncharged = ['netlink', 'corked', 'unaccepted', 'corked-v6', 'unaccepted-v6']
/** The same with IPv6, and beside idle sockets: as many as the runner lists, or more. */
export const unchargedAmongIdle = uncharged.flatMap((way) => ['-among-900', '-among-3000'].map((idle) => way + idle))
/** Bounded by other means, far below. */
export const bounded = ['terminals', 'filters']

/** The maximum that `hold-memory` reported. */
export const heldBytes = (printed: string): number => Number(/(\d+)\n?$/.exec(printed.trim())?.[1] ?? Number.NaN)

/** Fills every writable mount, first with bytes, then with names. One line of JSON for each. */
export const fillAll = `
import errno, json, os
def fill(at):
    total, names = 0, 0
    path = os.path.join(at, 'fill')
    try:
        with open(path, 'wb', buffering=0) as file:
            while True:
                total += file.write(b'x' * 65536)
    except OSError as error:
        bytes_error = errno.errorcode[error.errno]
    if os.path.exists(path): os.remove(path)
    try:
        while True:
            os.mkdir(os.path.join(at, f'name-{names}'))
            names += 1
    except OSError as error:
        names_error = errno.errorcode[error.errno]
    for number in range(names): os.rmdir(os.path.join(at, f'name-{number}'))
    return {'at': at, 'bytes': total, 'bytes_error': bytes_error, 'names': names, 'names_error': names_error}

points = [line.split(' ')[4] for line in open('/proc/self/mountinfo')]
for at in dict.fromkeys(points):
    if os.path.isdir(at) and os.access(at, os.W_OK):
        print(json.dumps(fill(at)))
`
