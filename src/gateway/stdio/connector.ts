import { Refusal } from '../../base/errors.ts'
import type { UpstreamProcess } from '../../core/upstreams/programs/program-process.ts'
import type { ProgramScope } from '../../core/upstreams/programs/programs.ts'
import { type ProgramTarget, toProgramTarget } from '../../core/upstreams/programs/sandbox-spec.ts'
import type { Connector } from '../connector.ts'
import { type TraceContext, traceOf } from '../trace-context.ts'
import { StdioConnection } from './connection.ts'

/** Starts processes of upstreams; see `UpstreamPrograms`. */
export interface ProgramHost {
  mustInstall(target: ProgramTarget): Promise<boolean>
  start(target: ProgramTarget): Promise<UpstreamProcess>
}

const noSession = 'The client of this gateway opened no session, so it cannot be asked.'
const isShared = 'Several clients share this program, so none of them can be asked. Set its sharing to session.'

/** Returns how to connect to upstreams that are programs. The credential is in their environment. */
export const stdioConnector = (programs: ProgramHost): Connector<TraceContext> => ({
  authorize: (_target, request) => ({ auth: request ? traceOf(request) : {}, intoBody: undefined }),
  connect: async (given, _auth, isOwn) => {
    const target = toProgramTarget(given)
    const process = await programs.start(target)
    if (target.program.sharing === 'shared') return new StdioConnection(process, { refusal: isShared, isShared: true })
    return new StdioConnection(process, isOwn ? { refusal: noSession } : {})
  },
  statusOf: () => undefined,
  fullScope: (error) =>
    error instanceof Refusal && error.code === 'upstream_programs_full'
      ? (error.details.scope as ProgramScope)
      : undefined,
  isShared: (target) => toProgramTarget(target).program.sharing === 'shared',
  isSlow: (target) => programs.mustInstall(toProgramTarget(target)),
  idleMsOf: (target) => toProgramTarget(target).program.idleMs,
  what: 'programs',
})
