import { execFileSync } from 'node:child_process'
import {
  chmodSync,
  chownSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  readlinkSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { Client } from '@modelcontextprotocol/sdk/client/index.js'
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { program } from '../support/glovebox.ts'
import { disposablePlaces, openStory } from '../support/story.ts'

/** The operator, whose files they are. */
const operator = 1234
const base = mkdtempSync(join(tmpdir(), 'glovebox-projects-'))
const outside = join(base, 'outside.txt')
writeFileSync(outside, 'of the host\n')
const projects = Object.fromEntries(
  ['edited', 'frozen', 'reviewed'].map((name) => {
    const directory = join(base, name)
    mkdirSync(join(directory, 'src'), { recursive: true })
    writeFileSync(join(directory, 'src/main.py'), 'print("one")\n')
    writeFileSync(join(directory, 'old.txt'), 'old\n')
    writeFileSync(join(directory, 'of-root.txt'), 'secret of root\n', { mode: 0o600 })
    symlinkSync(outside, join(directory, 'absolute-link'))
    symlinkSync('../outside.txt', join(directory, 'relative-link'))
    for (const path of [
      directory,
      join(directory, 'src'),
      join(directory, 'src/main.py'),
      join(directory, 'old.txt'),
    ]) {
      chownSync(path, operator, operator)
    }
    return [name, directory]
  }),
)
const { edited, frozen, reviewed } = projects as Record<'edited' | 'frozen' | 'reviewed', string>

const story = openStory(['--workspace', `edited=${edited},frozen=${frozen}:read-only,reviewed=${reviewed}:review`])
const places = disposablePlaces()
afterAll(() => rmSync(base, { recursive: true, force: true }))

let client: Client
beforeAll(async () => {
  client = new Client({ name: 'coding-agent', version: '1.0.0' })
  await client.connect(new StreamableHTTPClientTransport(new URL(`${story.url}/mcp?toolsets=workspace`)))
})
afterAll(() => client.close())

async function call(workspace: string, name: string, input: object = {}) {
  const { content, isError } = await client.callTool({ name, arguments: { workspace, ...input } })
  return { text: (content as { text: string }[])[0]!.text, isError: isError === true }
}

const bash = (workspace: string, command: string) => call(workspace, 'Bash', { command })

const glovebox = (...words: string[]) =>
  execFileSync(program, ['workspaces', ...words, '--url', story.url], { encoding: 'utf8' })

const api = async (path: string, body?: object) => {
  const init = body && { method: 'POST', headers: { 'content-type': 'application/json' }, body: JSON.stringify(body) }
  const response = await fetch(`${story.url}/v1/workspaces${path}`, init)
  return { status: response.status, body: (await response.json()) as Record<string, never> }
}

describe('a host directory that agents may change', () => {
  it('is changed in place, and new files belong to the operator', async () => {
    await call('edited', 'Read', { file_path: 'src/main.py' })
    expect(
      await call('edited', 'Edit', { file_path: 'src/main.py', old_string: 'one', new_string: 'two' }),
    ).toMatchObject({ isError: false })
    await bash('edited', 'mkdir made && echo new > made/new.txt')
    expect(readFileSync(join(edited, 'src/main.py'), 'utf8')).toBe('print("two")\n')
    for (const path of ['src/main.py', 'made', 'made/new.txt'])
      expect(statSync(join(edited, path))).toMatchObject({ uid: operator, gid: operator })
  })

  it('shows changes that the operator makes meanwhile, and an edit notices them', async () => {
    await call('edited', 'Read', { file_path: 'old.txt' })
    writeFileSync(join(edited, 'old.txt'), 'changed outside\n')
    expect(await call('edited', 'Edit', { file_path: 'old.txt', old_string: 'old', new_string: 'x' })).toMatchObject({
      isError: true,
      text: expect.stringMatching(/changed/),
    })
    expect((await bash('edited', 'cat old.txt')).text).toBe('changed outside\n')
  })

  it('leads to nothing else of the host', async () => {
    for (const link of ['absolute-link', 'relative-link']) {
      expect(await call('edited', 'Read', { file_path: link })).toMatchObject({ isError: true })
      expect((await bash('edited', `cat ${link}`)).text).not.toContain('of the host')
    }
    expect((await bash('edited', `cat ../../../../../..${outside} ${outside}`)).text).not.toContain('of the host')
    // The link is replaced while files behind it are read and written.
    const race =
      'ln -sfn /etc swap; for i in $(seq 300); do ln -sfn . swap; ln -sfn ../.. swap; done & for i in $(seq 100); do echo x > swap/outside.txt; cat swap/outside.txt; done 2>/dev/null | sort -u; wait'
    expect((await bash('edited', race)).text).not.toContain('of the host')
    expect(readFileSync(outside, 'utf8')).toBe('of the host\n')
  })

  it('gets no set-user-ID and set-group-ID bits, by whatever system call', async () => {
    const attacks = `
import ctypes, os, sys
libc = ctypes.CDLL(None, use_errno=True)
O = os.O_CREAT | os.O_EXCL | os.O_WRONLY
# On x86-64; other architectures have only those that end with "at" and fchmod.
numbers = {"chmod": 90, "fchmod": 91, "fchmodat": 268, "fchmodat2": 452, "open": 2, "creat": 85, "openat": 257, "openat2": 437, "mknod": 133, "mknodat": 259}
open("plain", "w").close()
fd = os.open("plain", os.O_RDWR)
how = (ctypes.c_uint64 * 3)(O, 0o4755, 0)
tmp = os.O_TMPFILE | os.O_RDWR
for bits in (0o4755, 0o2755, 0o6755):
    how[1] = bits
    calls = [
        ("chmod", b"plain", bits), ("fchmod", fd, bits), ("fchmodat", -100, b"plain", bits), ("fchmodat2", -100, b"plain", bits, 0),
        ("open", b"made-1", O, bits), ("creat", b"made-2", bits), ("openat", -100, b"made-3", O, bits), ("openat", -100, b".", tmp, bits),
        ("openat2", -100, b"made-4", how, 24), ("mknod", b"made-5", 0o100000 | bits, 0), ("mknodat", -100, b"made-6", 0o100000 | bits, 0),
    ]
    if os.uname().machine != "x86_64":
        calls = [each for each in calls if each[0] in ("fchmod",)]
        numbers["fchmod"] = 52
    for name, *arguments in calls:
        ctypes.set_errno(0)
        result = libc.syscall(ctypes.c_long(numbers[name]), *[ctypes.c_long(a) if isinstance(a, int) else a for a in arguments])
        print(name, oct(bits), result, ctypes.get_errno(), flush=True)
os.chmod("plain", 0o1755)
`
    await call('edited', 'Write', { file_path: 'attacks.py', content: attacks })
    const { text } = await bash('edited', 'python3 attacks.py; chmod g+s src; mkdir -m 2777 dir; cp -a plain copy; ls')
    const results = text.split('\n').filter((line) => / 0o\d755 /.test(line))
    expect(results.length).toBeGreaterThanOrEqual(3)
    for (const line of results) expect(line).toMatch(/ -1 (?:1|38)$/)
    expect(text).toMatch(/changing permissions of 'src': Operation not permitted/)
    expect(text).not.toContain('made-')
    const withBits = execFileSync('find', [edited, '-perm', '/6000'], { encoding: 'utf8' })
    expect(withBits).toBe('')
    expect(statSync(join(edited, 'copy')).mode & 0o7777).toBe(0o1755)
    // Without the protection the same program succeeds.
    const unprotected = await bash('unshared', `cat >attacks.py <<'EOF'\n${attacks}\nEOF\npython3 attacks.py`)
    expect(unprotected.text).toMatch(/^chmod 0o4755 0 0$/m)
  })

  it('loses the bit of a file that is edited', async () => {
    writeFileSync(join(edited, 'tool'), 'one\n')
    chownSync(join(edited, 'tool'), operator, operator)
    chmodSync(join(edited, 'tool'), 0o4755)
    await call('edited', 'Read', { file_path: 'tool' })
    expect(await call('edited', 'Edit', { file_path: 'tool', old_string: 'one', new_string: 'two' })).toMatchObject({
      isError: false,
    })
    expect(statSync(join(edited, 'tool')).mode & 0o7777).toBe(0o755)
  })

  it('keeps files of other users from it', async () => {
    expect((await bash('edited', 'cat of-root.txt; echo x > of-root.txt; chown 0:0 of-root.txt')).text).not.toContain(
      'secret',
    )
    expect(readFileSync(join(edited, 'of-root.txt'), 'utf8')).toBe('secret of root\n')
  })
})

describe('a host directory that agents may only read', () => {
  it('is read-only by its mount, for root of the sandbox as well', async () => {
    expect((await call('frozen', 'Read', { file_path: 'old.txt' })).text).toBe('1\told\n')
    expect(await call('frozen', 'Edit', { file_path: 'old.txt', old_string: 'old', new_string: 'x' })).toMatchObject({
      isError: true,
      text: expect.stringMatching(/read-only/),
    })
    const { text } = await bash(
      'frozen',
      'id -u; echo x > old.txt; rm old.txt; touch new; mount -o remount,rw . ; mount --bind . /mnt',
    )
    expect(text).toMatch(/^0\n/)
    expect(text).toMatch(/Read-only file system/)
    expect(readFileSync(join(frozen, 'old.txt'), 'utf8')).toBe('old\n')
    expect(existsSync(join(frozen, 'new'))).toBe(false)
  })
})

describe('a host directory under review', () => {
  it('stays as it is while agents change it, and shows their changes', async () => {
    await call('reviewed', 'Read', { file_path: 'src/main.py' })
    await call('reviewed', 'Edit', { file_path: 'src/main.py', old_string: 'one', new_string: 'two' })
    await call('reviewed', 'Write', { file_path: 'src/deep/new.txt', content: 'new\n' })
    await bash(
      'reviewed',
      'rm old.txt; ln -s src/main.py link; printf "#!/bin/sh\\n" > tool; chmod 4755 tool; touch src',
    )
    expect(readFileSync(join(reviewed, 'src/main.py'), 'utf8')).toBe('print("one")\n')
    expect(existsSync(join(reviewed, 'link'))).toBe(false)
    const { text } = await call('reviewed', 'review_changes')
    expect(text).toContain('--- a/src/main.py\n+++ b/src/main.py\n@@ -1,1 +1,1 @@\n-print("one")\n+print("two")\n')
    expect(text).toContain('--- a/old.txt\n+++ /dev/null\n')
    const { body } = await api('/reviewed/changes')
    expect(body.changes).toEqual([
      { path: 'link', change: 'added', kind: 'link', size_bytes: 0 },
      { path: 'old.txt', change: 'deleted', kind: 'file', size_bytes: 0 },
      { path: 'src/deep', change: 'added', kind: 'directory', size_bytes: 0 },
      { path: 'src/deep/new.txt', change: 'added', kind: 'file', size_bytes: 4 },
      { path: 'src/main.py', change: 'modified', kind: 'file', size_bytes: 13 },
      { path: 'tool', change: 'added', kind: 'file', size_bytes: 10 },
    ])
  })

  it('gets the changes that the operator applies by file, and loses those that are dropped', async () => {
    expect(glovebox('apply', 'reviewed', 'src/deep', 'link', 'tool')).toBe(
      'Applied: link (added)\nApplied: src/deep (added)\nApplied: src/deep/new.txt (added)\nApplied: tool (added)\n',
    )
    expect(readFileSync(join(reviewed, 'src/deep/new.txt'), 'utf8')).toBe('new\n')
    expect(statSync(join(reviewed, 'src/deep/new.txt'))).toMatchObject({ uid: operator, gid: operator })
    expect(readlinkSync(join(reviewed, 'link'))).toBe('src/main.py')
    // Without the set-user-ID bit.
    expect(statSync(join(reviewed, 'tool')).mode & 0o7777).toBe(0o755)
    expect(glovebox('drop', 'reviewed', 'old.txt')).toBe('Dropped: old.txt (deleted)\n')
    expect(glovebox('diff', 'reviewed')).toMatch(/^--- a\/src\/main\.py\n/)
    expect((await bash('reviewed', 'cat old.txt src/main.py src/deep/new.txt')).text).toBe('old\nprint("two")\nnew\n')
  })

  it('follows no link of the host or of the sandbox when changes are applied', async () => {
    mkdirSync(join(reviewed, 'place'))
    chownSync(join(reviewed, 'place'), operator, operator)
    await bash('reviewed', 'echo planted > place/outside.txt')
    // The operator, or a program of theirs, replaces the directory by a link before the changes are applied.
    rmSync(join(reviewed, 'place'), { recursive: true })
    symlinkSync('..', join(reviewed, 'place'))
    const { status } = await api('/reviewed/apply', { paths: ['place/outside.txt'] })
    expect(readFileSync(outside, 'utf8')).toBe('of the host\n')
    expect(status).toBe(400)
    rmSync(join(reviewed, 'place'), { recursive: true, force: true })
  })

  it('gets all changes at once, or none of them', async () => {
    expect((await api('/reviewed/drop', {})).status).toBe(200)
    expect(glovebox('diff', 'reviewed')).toBe('')
    await bash('reviewed', 'rm -r src; mkdir src; echo fresh > src/fresh.txt; mkfifo pipe')
    expect((await api('/reviewed/changes')).body).toMatchObject({
      changes: [
        { path: 'src/fresh.txt', change: 'added' },
        { path: 'src/deep', change: 'deleted', kind: 'directory' },
        { path: 'src/main.py', change: 'deleted', kind: 'file' },
      ],
      unsupported: ['pipe'],
    })
    expect(glovebox('apply', 'reviewed', '--all')).toContain('Applied: src/fresh.txt (added)\n')
    expect(existsSync(join(reviewed, 'src/main.py'))).toBe(false)
    expect(readFileSync(join(reviewed, 'src/fresh.txt'), 'utf8')).toBe('fresh\n')
    expect((await api('/reviewed/changes')).body).toMatchObject({ changes: [], unsupported: [] })
  })
})

describe('the workspaces of a server', () => {
  it('are listed, and only those under review have changes', async () => {
    expect((await api('')).body.data).toEqual([
      { name: 'edited', directory: edited, mode: 'read-write', path: '/volumes/edited' },
      { name: 'frozen', directory: frozen, mode: 'read-only', path: '/volumes/frozen' },
      { name: 'reviewed', directory: reviewed, mode: 'review', path: '/volumes/reviewed' },
    ])
    expect(await api('/edited/changes')).toMatchObject({ status: 400, body: { code: 'review_unavailable' } })
    expect(await api('/unknown/apply', {})).toMatchObject({ status: 404 })
    expect(await api('/reviewed/apply', { paths: ['no-such-file'] })).toMatchObject({ status: 404 })
  })

  it('cannot be directories of the system or of the server, nor exist without development mode', async () => {
    chmodSync(base, 0o711)
    for (const [flags, problem] of [
      [['--workspace', '/etc'], /\/etc cannot be a workspace/],
      [['--workspace', '/'], /\/ cannot be a workspace/],
      [['--workspace', join(base, 'missing')], /cannot be opened: ENOENT/],
      [['--workspace', outside], /is not a directory/],
      [['--workspace', edited, '--no-dev'], /in development mode only/],
      [['--workspace', `${edited},${frozen}`], /two directories have the name workspace/],
    ] as const) {
      const place = places()
      const server = place.launch('--port', '0', ...flags)
      expect((await server.exited).code, flags.join(' ')).toBe(78)
      expect(server.complaint, flags.join(' ')).toMatch(problem)
    }
  })
})
