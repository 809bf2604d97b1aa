import type { Limits, RunSpec } from '../../base/run.ts'
import {
  encodeFrame,
  encodePrepare,
  type Frame,
  fromGuest,
  GuestProtocolError,
  toGuest,
  u32Of,
} from '../slots/guest-channel.ts'
import {
  creditWindowBytes,
  jailWithinMs,
  pictureWindowBytes,
  type RunSlot,
  requireUnderLimits,
} from '../slots/run-slot.ts'
import { home, type PrewarmCommand } from './languages.ts'

/** The limits that are part of a jail, and so must be known before it is made. */
const fixedLimits = [
  'cpus',
  'memoryBytes',
  'pids',
  'openFiles',
  'fileBytes',
  'tmpBytes',
  'homeBytes',
] as const satisfies (keyof Limits)[]

/**
 * A jail made before its run is known, with an interpreter in it that waits for source text: the next run of its
 * language finds everything done. It becomes part of a run, or it is ended.
 */
export class PrewarmedJail {
  /** The number of the run that it will be. */
  readonly number: number
  readonly #slot: RunSlot
  readonly #spec: RunSpec
  readonly #command: PrewarmCommand
  readonly #ready = Promise.withResolvers<void>()
  readonly #gone = Promise.withResolvers<void>()
  readonly #timer: NodeJS.Timeout
  readonly #mounted: () => void
  #pid = 0
  #phase: 'making' | 'ready' | 'ending' | 'gone' = 'making'

  /** @param spec of a run as the next one is expected to be. */
  constructor(slot: RunSlot, number: number, spec: RunSpec, command: PrewarmCommand, env: Record<string, string>) {
    this.number = number
    this.#slot = slot
    this.#spec = spec
    this.#command = command
    this.#mounted = slot.beginMounting()
    slot.guest.receive((frame) => this.#receive(frame))
    slot.guest.send([
      encodePrepare(number, {
        ...spec.limits,
        argv: command.argv,
        codeFile: command.codeFile,
        env,
        home,
        certificates: spec.network?.certificates,
        prewarm: command.method,
        shownCpus: slot.shownCpus,
        codeBytes: 0,
        creditBytes: creditWindowBytes,
        pictureCreditBytes: pictureWindowBytes,
      }),
    ])
    this.#timer = setTimeout(() => void slot.condemn('a prewarmed jail was not ready in time'), jailWithinMs)
    this.#ready.promise.catch(() => undefined) // A failure is reported only to the run that takes the jail.
  }

  /** Whether a run can take it: nothing of the run shows that the jail was there before. */
  fits(spec: RunSpec): boolean {
    if (this.#phase !== 'making' && this.#phase !== 'ready') return false
    if (spec.language !== this.#spec.language) return false
    // Variables differ with a network.
    if ((spec.network === undefined) !== (this.#spec.network === undefined)) return false
    if (spec.network?.certificates !== this.#spec.network?.certificates) return false
    return fixedLimits.every((name) => spec.limits[name] === this.#spec.limits[name]) && this.#command.takes(spec.env)
  }

  /** Its process on the host, when it is ready. */
  get pid(): number {
    return this.#pid
  }

  get state(): 'nothing' | 'making' | 'ready' {
    return this.#phase === 'making' || this.#phase === 'ready' ? this.#phase : 'nothing'
  }

  /** Resolves when the interpreter has been started, under the limits of the run. Never, when the slot ends before. */
  get ready(): Promise<void> {
    return this.#ready.promise
  }

  /** What BEGIN carries: variables, where they are not part of the jail already. */
  variablesOf(env: Readonly<Record<string, string>>): Readonly<Record<string, string>> {
    return this.#command.method === 'fork' ? env : {}
  }

  /** Ends it unused. Resolves when nothing of it lives any more. */
  discard(): Promise<void> {
    if (this.#phase === 'making' || this.#phase === 'ready') {
      this.#phase = 'ending'
      this.#slot.guest.send([encodeFrame(toGuest.kill, this.number)])
    }
    return this.#gone.promise
  }

  /** BOUNDARY: every frame is checked against what may come now. */
  #receive(frame: Frame): void {
    if (frame.run !== this.number) throw new GuestProtocolError(`a frame of run ${frame.run} before ${this.number}`)
    const isOver = frame.kind === fromGuest.exited || frame.kind === fromGuest.failed
    if (frame.kind === fromGuest.waiting && this.#phase === 'making') {
      this.#admit(u32Of(frame))
    } else if (isOver) {
      const wasWanted = this.#phase !== 'ending'
      this.#end()
      if (wasWanted) void this.#slot.condemn(`a prewarmed jail ended early: ${reasonOf(frame)}`)
    } else if (this.#phase !== 'ending') {
      // What its interpreter prints before it has anything to run would land in the output of somebody's run.
      throw new GuestProtocolError(`a frame of kind ${frame.kind} before the run began`)
    }
  }

  #admit(slotPid: number): void {
    this.#mounted()
    try {
      this.#pid = requireUnderLimits(this.#slot, slotPid)
    } catch (error) {
      void this.#slot.condemn(`the process is not under its limits: ${(error as Error).message}`)
      return
    }
    this.#slot.guest.send([encodeFrame(toGuest.go, this.number)])
    this.#phase = 'ready'
    clearTimeout(this.#timer)
    this.#ready.resolve()
  }

  #end(): void {
    this.#mounted()
    this.#phase = 'gone'
    clearTimeout(this.#timer)
    this.#gone.resolve()
  }

  /** The slot ended. */
  abandon(): void {
    this.#end()
  }
}

const reasonOf = ({ kind, payload }: Frame): string =>
  kind === fromGuest.failed ? payload.toString('utf8', 0, 500) : 'its interpreter ended'
