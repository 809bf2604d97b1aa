import type { NetworkUse } from '../../base/network.ts'
import type { Limits } from '../../base/run.ts'
import type { Transcript } from '../../core/runs/transcript.ts'
import { bytesInWords } from './ending-words.ts'

/** Limits that a program can meet without being ended for it. */
export const limitsThatRefuse = ['pids', 'open_files', 'file_size', 'storage', 'sockets'] as const
export type LimitMet = (typeof limitsThatRefuse)[number]

type Said = Pick<Transcript, 'result' | 'stdout' | 'stderr'>

interface Kind {
  /** What programs and libraries print when the kernel refuses. */
  signs: RegExp
  inWords(limits: Limits): string
}

/**
 * The patterns of this file are matched against as much text as a run may print, while no other request is answered. So none
 * of them contains an unbounded repetition that can begin at more than one place of a line.
 *
 * The kernel counts no refusals of these limits, except those of a whole cgroup, which a run never meets. So they are found
 * by the error texts of the C library (strerror(3)) and of the interpreters.
 */
const kinds: Record<LimitMet, Kind> = {
  pids: {
    signs:
      /can't start new thread|[Rr]esource temporarily unavailable(?<=\bfork[\s\S]{0,440})|\bspawn\w* \S+ EAGAIN\b|ERR_WORKER_INIT_FAILED|pthread_create/,
    inWords: ({ pids }) => `${pids} processes and threads are allowed at a time`,
  },
  open_files: {
    signs: /Too many open files|\bEMFILE\b/,
    inWords: ({ openFiles }) => `${openFiles} open files are allowed in each process`,
  },
  file_size: {
    signs: /File too large|File size limit exceeded|\bEFBIG\b/,
    inWords: ({ fileBytes }) => `a file may be at most ${bytesInWords(fileBytes)} long`,
  },
  storage: {
    signs: /No space left on device|Disk quota exceeded|\bENOSPC\b|\bEDQUOT\b/,
    inWords: ({ tmpBytes, homeBytes }) =>
      `/tmp holds at most ${bytesInWords(tmpBytes)}, and a home directory without a thread ${bytesInWords(homeBytes)}`,
  },
  sockets: {
    signs: /No buffer space available|\bENOBUFS\b/,
    inWords: ({ memoryBytes }) => `the buffers of sockets are part of the ${bytesInWords(memoryBytes)} of memory`,
  },
}

const anyOf = (...patterns: readonly RegExp[]): RegExp =>
  new RegExp(patterns.map(({ source }) => source).join('|'), 'm')

/**
 * A program that catches the error may print it to standard output, where the same words can also be data. Therefore only
 * the forms count in which languages and programs print an error.
 */
const inOutput = new RegExp(
  anyOf(
    /\[Errno (?:24|27|28|105|122)\] [A-Z][a-z ]+|\bcan't start new thread\b|\b(?:EMFILE|EFBIG|ENOSPC|EDQUOT|ENOBUFS): [a-z ]+|\bspawn\w* \S+ EAGAIN\b/,
    /\bfork: (?:retry: )?Resource temporarily unavailable/,
    /^[\w./-]{1,100}: [^\n]{0,400}: (?:Too many open files|File too large|No space left on device|Disk quota exceeded|No buffer space available)$/,
  ),
  'gm',
)

/** Texts of the C library, of curl, git, pip, npm, apt, and of the languages, for a name or an address out of reach. */
const noNetworkSigns = anyOf(
  /Temporary failure (?:in name resolution|resolving)|Name or service not known|No address associated with hostname|Could(?: not|n't) resolve (?:host|')|unable to resolve host address|Network is unreachable|\bEAI_AGAIN\b|\bENETUNREACH\b|getaddrinfo ENOTFOUND/,
  // c-ares in Node.js, and the tools of BIND, which find no name server.
  /\bquery[A-Z]\w* ECONNREFUSED|no servers could be reached/,
  // curl says the same for a refused connection on loopback.
  /curl: \(7\) Failed to connect to (?!localhost|127\.|::1|\[::1)/,
  // pip without retries, and apt, whose lists are not part of the image.
  /\(from versions: none\)|\/var\/lib\/apt\/lists|dpkg frontend lock|E: Unable to locate package/,
)

/** The forms in which programs print this themselves, for standard output, where other text can be data. */
const noNetworkInOutput = anyOf(
  /\[Errno (?:-[235]|101)\] [A-Z][a-z ]+|\bgetaddrinfo (?:ENOTFOUND|EAI_AGAIN) |\bconnect ENETUNREACH |\bquery[A-Z]\w* ECONNREFUSED/,
  /^curl: \((?:6\)|7\) Failed to connect to (?!localhost|127\.|::1|\[::1))/,
  /^wget: unable to resolve host address|^ssh: Could not resolve hostname|^npm (?:error|ERR!) network\b/,
  /^fatal: unable to access '[^\n']{1,400}': Could not resolve host/,
  /^ERROR: Could not find a version that satisfies [^\n]{1,400} \(from versions: none\)/,
  /^[EW]: Failed to fetch \S{1,400} {1,2}(?:Could not resolve|Temporary failure resolving) '|^E: Unable to locate package /,
)

const noNetworkNote =
  '**Note:** a run has no network. An operator gives it one with the setting network of its profile; without it, files can be uploaded to a thread'

/** Returns the limits that a run met although its ending does not name them, as far as its output says so. */
export function limitsMet({ result, stdout, stderr }: Said): LimitMet[] {
  if (result.ending.kind === 'disk_quota') return []
  const said = [stderr.text, ...(stdout.text.match(inOutput) ?? [])].join('\n')
  return limitsThatRefuse.filter((name) => kinds[name].signs.test(said))
}

/** Destinations that one sentence names. */
const namedMax = 5

function refusedConnections(uses: readonly NetworkUse[]): string[] {
  const refused = uses.filter(({ verdict }) => verdict.startsWith('refused_'))
  if (refused.length === 0) return []
  const named = refused.slice(0, namedMax).map(({ host, port, verdict }) => `${host}:${port} (${verdict})`)
  const more = refused.length > namedMax ? ` and ${refused.length - namedMax} others` : ''
  return [
    `**Note:** the network policy of this run refused ${named.join(', ')}${more}. An operator can change the policy`,
  ]
}

/** Returns a sentence for a model about each of these limits, and about the network that its program looked for. */
export function limitNotes(transcript: Said): string[] {
  const { limits } = transcript.result
  const met = limitsMet(transcript).map((name) => `**Note:** a limit was met: ${kinds[name].inWords(limits)}`)
  const { network } = transcript.result
  if (network !== undefined) return [...met, ...refusedConnections(network)]
  const lookedForOne = noNetworkSigns.test(transcript.stderr.text) || noNetworkInOutput.test(transcript.stdout.text)
  return lookedForOne ? [...met, noNetworkNote] : met
}
