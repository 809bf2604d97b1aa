/** States of a home directory that code can create, and the runs that follow. */
import { describe, expect, it } from 'vitest'
import { execute, post } from '../support/calls.ts'
import { openStory } from '../support/story.ts'

const story = openStory([
  ...['--limit-thread', '8MiB', '--limit-thread-files', '600', '--storage-reserve', '0', '--thread-idle-s', '1'],
])

/** An ACL as the kernel stores it (linux/posix_acl_xattr.h), which gives the owner nothing. */
const deny = (kind: 'access' | 'default') => `
import os, struct
entries = [(0x01, 0, -1), (0x02, 0, 1000), (0x04, 0, -1), (0x10, 0, -1), (0x20, 0, -1)]
acl = struct.pack('<I', 2) + b''.join(struct.pack('<HHi', *entry) for entry in entries)
os.setxattr('.', 'system.posix_acl_${kind}', acl)
print('set')
`

/** Each prints `set` when the state exists. */
const states: Readonly<Record<string, string>> = {
  'without any mode': 'import os; os.chmod(".", 0); print("set")',
  'that its owner can only search': 'import os; os.chmod(".", 0o111); print("set")',
  'that its owner can only read': 'import os; os.chmod(".", 0o444); print("set")',
  'that its owner cannot write': 'import os; os.chmod(".", 0o555); print("set")',
  'that only others can use': 'import os; os.chmod(".", 0o077); print("set")',
  'with every special bit': 'import os; os.chmod(".", 0o7777); print("set")',
  'with an ACL that denies its owner': deny('access'),
  'with a default ACL that denies the owner of new files': deny('default'),
  'that is full of bytes': `
import errno, os
try:
    with open('big', 'wb', 0) as file:
        while True: file.write(bytes(65536))
except OSError as error: assert error.errno == errno.ENOSPC
print('set')`,
  'that is full of files': `
import errno, itertools
try:
    for n in itertools.count(): open(f'f{n}', 'x').close()
except OSError as error: assert error.errno == errno.ENOSPC
print('set')`,
  'with directories deeper than any path can name, the last without a mode': `
import os
for _ in range(100): os.mkdir('d' * 200); os.chdir('d' * 200)
os.chmod('.', 0); os.chdir('/home/baponi'); os.chmod('d' * 200, 0)
print('set')`,
  'with every name that the server uses for unfinished files': `
import os
for n in range(0, 64, 2):
    os.mkdir(f'.glovebox-{n}'); open(f'.glovebox-{n}/kept', 'w').close(); os.chmod(f'.glovebox-{n}', 0)
    os.mkfifo(f'.glovebox-{n + 1}', 0)
os.mkdir('lost+found'); open('lost+found/kept', 'w').close(); os.chmod('lost+found', 0)
print('set')`,
  'with unusual names, links, sockets and times': `
import os, socket
for name in [b'\\xff\\xfe', b'\\n', b'-rf', b'n' * 255, b'...', b' ', b'\\x1b[2J', '\\u202e'.encode()]: open(name, 'w').close()
for name, target in [('self', 'self'), ('up', '../..'), ('gone', '/proc/1/root'), ('dev', '/dev/zero')]: os.symlink(target, name)
socket.socket(socket.AF_UNIX).bind('socket'); os.mkfifo('fifo')
for at in [-2**31, 2**33]: os.utime('.', (at, at)); os.utime('-rf', (at, at))
os.setxattr('.', 'user.note', b'x' * 3000)
print('set')`,
  'with programs under the names of those that runs use': `
import os
for name in ['python3', 'node', 'bash', 'main.py', 'main.sh', 'main.js', 'sh', '.node-version']:
    open(name, 'w').write('#!/bin/false\\n'); os.chmod(name, 0o755)
for name in ['.bashrc', '.bash_profile', '.profile', '.bash_env', '.bash_logout', '.pythonrc', '.pythonstartup', '.node_repl_history']:
    open(name, 'w').write('exit 3\\n')
os.mkdir('.cache', 0); os.mkdir('.config', 0); os.mkdir('__pycache__', 0); os.mkdir('node_modules', 0)
print('set')`,
}

/** A run of each language works in the home: it lists it, and prints its directory. */
const followers: Readonly<Record<string, string>> = {
  bash: 'ls -a >/dev/null && pwd',
  python: 'import os; os.listdir("."); print(os.getcwd())',
  node: 'require("node:fs").readdirSync("."); console.log(process.cwd())',
}

const threadOf = (state: string): string => state.replaceAll(/[ ,]+/g, '-')

describe('a home', () => {
  it.each(Object.entries(states))('%s leaves the next run of every language working', async (state, code) => {
    const thread_id = threadOf(state)
    expect(await execute(story.url, 'python', code, { thread_id })).toMatchObject({ stdout: 'set\n', exit_code: 0 })
    for (const language of ['bash', 'python', 'node', 'bash']) {
      const next = await execute(story.url, language, followers[language]!, { thread_id })
      expect([language, next.stdout, next.stderr, next.exit_code]).toEqual([language, '/home/baponi\n', '', 0])
    }
    // And its files can be listed by others.
    const listed = await post(`${story.url}/v1/files/list`, { source: 'thread', id: thread_id })
    expect(listed.status).toBe(200)
  })

  it('keeps a mode that its owner can work with', async () => {
    await execute(story.url, 'bash', 'chmod 700 .', { thread_id: 'private' })
    expect((await execute(story.url, 'bash', 'stat -c %a .', { thread_id: 'private' })).stdout).toBe('700\n')
  })

  it('can be emptied after any of these states', async () => {
    for (const state of Object.keys(states)) {
      const thread_id = threadOf(state)
      const code = 'chmod -R u+rwx . 2>/dev/null; find . -mindepth 1 -delete && echo new >new && cat new'
      const { stdout, stderr } = await execute(story.url, 'bash', code, { thread_id })
      expect([state, stdout, stderr]).toEqual([state, 'new\n', ''])
    }
  })
})
