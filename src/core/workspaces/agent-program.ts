import { readFile } from 'node:fs/promises'
import { encodeFrame } from './agent-frames.ts'

/** The parts of the program in the order in which they depend on each other; they share one namespace. */
const parts = [
  'paths',
  'files',
  'edit',
  'search',
  'shell',
  'background',
  'reports',
  'findings',
  'snapshots',
  'symbols',
  'servers',
  'code',
  'serve',
]
const folder = new URL('../../../guest/workspace/', import.meta.url)

/** Reads the program from the channel and executes it, so that an image needs only Python. */
const bootstrap = `import os,struct,sys
def r(n):
 b=b""
 while len(b)<n:
  c=os.read(3,n-len(b))
  if not c:os._exit(0)
  b+=c
 return b
WORKSPACE=sys.argv[1]
exec(compile(r(struct.unpack(">I",r(4))[0]),"workspace","exec"))`

/** Returns the command that starts the agent of a workspace. @param directory absolute path inside the sandbox. */
export const agentCommand = (directory: string): string[] => ['python3', '-I', '-c', bootstrap, directory]

let source: Promise<Buffer> | undefined

/** Returns the program as the first frame of a channel. It is read once. */
export function agentProgram(): Promise<Buffer> {
  source ??= Promise.all(parts.map((part) => readFile(new URL(`${part}.py`, folder), 'utf8'))).then((texts) =>
    encodeFrame(texts.join('\n\n')),
  )
  return source
}
