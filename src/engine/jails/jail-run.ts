import { monotonicMs } from '../../base/clock.ts'
import type { CancelCause, Ending, ImageType, Limits, RunResult, Stream } from '../../base/run.ts'
import type { Usage } from '../cgroups/cgroups.ts'
import { PictureIntake, picturesHardBytes } from '../pictures/picture-intake.ts'
import {
  type Exit,
  encodeCredit,
  encodeFrame,
  exitOf,
  type Frame,
  fromGuest,
  GuestProtocolError,
  toGuest,
  u32Of,
} from '../slots/guest-channel.ts'
import { jailWithinMs, type RunSlot, requireUnderLimits } from '../slots/run-slot.ts'
import { endingOf, type Stop } from './ending.ts'
import { beginFramesOf, framesOf, type JailRequest } from './jail-frames.ts'
import { type NetworkOfJail, openNetwork } from './jail-network.ts'
import { OutputWindow } from './output-window.ts'
import { PrewarmedJail } from './prewarmed-jail.ts'

/** The events of a run in progress. Called in order, never after `ended`. */
export interface RunObserver {
  /** User code starts now. */
  running(): void
  /** @param bytes valid only during the call: copy what is to be kept. Nothing beyond the hard limit is handed out. */
  output(stream: Stream, bytes: Uint8Array): void
  /** Output beyond the soft limit, which is not returned. @returns for how many milliseconds no more of it should be read. */
  excess(bytes: number): number
  /** @param bytes not changed afterwards. */
  image(mimeType: ImageType, bytes: Uint8Array): void
}

export interface SlotRunResult extends Omit<RunResult, 'timings'> {
  /** From the request until the jail was there. */
  jailMs: number
  /** From then until user code started. */
  hostMs: number
  /** From the start of user code until nothing of it lived; 0 when it never started. Equals `durationMs`. */
  runMs: number
  /** When that was, on the monotonic clock. */
  endedMs: number
}

/** A run in a slot. */
export interface SlotRun {
  /** Ends it now; the first cause wins. A guest that does not obey within 2 s loses its slot. */
  stop(cause: CancelCause): void
  /** Never rejects. When it resolves nothing of the run lives any more. */
  readonly ended: Promise<SlotRunResult>
}

/** A jail that is made for its run. */
export interface FreshJail {
  number: number
  after: Promise<void> | undefined
}

/** Of what a guest says about a jail that failed. */
const keptProblemBytes = 500
/** What a kill may take before the slot is ended from outside. */
const killWithinMs = 2_000

/** One run in its jail, from the request to its ending. */
export class JailRun implements SlotRun {
  readonly ended: Promise<SlotRunResult>
  readonly #slot: RunSlot
  readonly #number: number
  readonly #limits: Limits
  readonly #observer: RunObserver
  readonly #network: NetworkOfJail | undefined
  readonly #requestedMs = monotonicMs()
  readonly #outputBytes: Record<Stream, number> = { stdout: 0, stderr: 0 }
  #resolve: (result: SlotRunResult) => void = () => undefined
  /** `queued`: nothing was sent yet, since something else of the slot comes first. */
  #phase: 'queued' | 'preparing' | 'waiting' | 'running' | 'ended' = 'queued'
  #startedMs: number | undefined
  /** When the jail was there; of one that was made ahead, when its run came. */
  #jailedMs: number | undefined
  #endedMs: number | undefined
  #stop: Stop | undefined
  #mounted: (() => void) | undefined
  readonly #window: OutputWindow
  /** Output beyond the soft limit that was not reported yet. */
  #excessBytes = 0
  readonly #images: PictureIntake
  /** Of the current phase: preparing, running, being killed. */
  #timer: NodeJS.Timeout

  /** @param place a jail that was made ahead, or the number of a fresh one and what must be over before it is made. */
  constructor(slot: RunSlot, place: PrewarmedJail | FreshJail, request: JailRequest, observer: RunObserver) {
    this.#slot = slot
    this.#number = place.number
    this.#limits = request.limits
    this.#observer = observer
    this.#window = new OutputWindow(place.number, (frame) => slot.guest.send([frame]))
    this.#network = request.network
    this.#images = new PictureIntake((mimeType, bytes) => observer.image(mimeType, bytes))
    this.ended = new Promise((resolve) => {
      this.#resolve = resolve
    })
    this.#timer = setTimeout(() => void slot.condemn('no jail was made in time'), jailWithinMs)
    if (place instanceof PrewarmedJail) {
      this.#jailedMs = this.#requestedMs
      const frames = beginFramesOf(place, request)
      void place.ready.then(() => this.#takeOver(place.pid, frames))
    } else {
      const frames = framesOf(place.number, request, slot.shownCpus)
      if (place.after === undefined) this.#prepare(frames)
      else void place.after.then(() => this.#prepare(frames))
    }
  }

  #prepare(frames: Buffer[]): void {
    if (this.#phase !== 'queued') return
    if (this.#stop) {
      this.#resolve(this.#result(this.#stop, this.#usage(), this.#end()))
      return
    }
    this.#phase = 'preparing'
    this.#mounted = this.#slot.beginMounting()
    this.#slot.guest.receive((frame) => this.#receive(frame))
    this.#slot.guest.send(frames)
  }

  /** The jail and its interpreter are there, and were held against their limits. */
  #takeOver(pid: number, frames: Buffer[]): void {
    if (this.#phase !== 'queued') return
    const { guest, cgroup } = this.#slot
    this.#phase = 'waiting'
    guest.receive((frame) => this.#receive(frame))
    if (this.#stop) {
      this.#sendKill()
      return
    }
    cgroup.beginUsage()
    this.#connect(pid, frames)
  }

  stop(cause: CancelCause): void {
    this.#kill({ kind: cause })
  }

  /** The slot's guest is gone, or not to be trusted: what is known so far is the result. @param dead when all is dead. */
  abandon(dead: Promise<void>): void {
    if (this.#phase === 'ended') return
    const runMs = this.#end()
    const ending: Ending = this.#stop ?? { kind: 'failed', reason: 'slot_lost' }
    const result = this.#result(ending, this.#usage(), runMs)
    void dead.then(() => this.#resolve(result))
  }

  /** BOUNDARY: every frame is checked against what may come now. */
  #receive(frame: Frame): void {
    if (frame.run !== this.#number) throw new GuestProtocolError(`a frame of run ${frame.run} during ${this.#number}`)
    if (this.#phase === 'ended') throw new GuestProtocolError('a frame of a run that has ended')
    switch (frame.kind) {
      case fromGuest.waiting:
        this.#admit(u32Of(frame))
        return
      case fromGuest.stdout:
        this.#output('stdout', frame.payload)
        return
      case fromGuest.stderr:
        this.#output('stderr', frame.payload)
        return
      case fromGuest.pictures:
        this.#takeImages(frame.payload)
        return
      case fromGuest.exited:
        this.#exited(exitOf(frame))
        return
      case fromGuest.failed:
        this.#failed(frame)
        return
      case fromGuest.hello:
        throw new GuestProtocolError('hello again')
      case fromGuest.inputRoom:
        throw new GuestProtocolError('room for an input that is not sent')
      case fromGuest.forker:
      case fromGuest.zygoteGone:
      case fromGuest.spareReady:
      case fromGuest.spareGone:
        throw new GuestProtocolError('word of a host that has none')
    }
  }

  /** The jail is made and its main process waits. It was born under the limits of `run`: that the kernel says so is held against it. */
  #admit(slotPid: number): void {
    if (this.#phase !== 'preparing') throw new GuestProtocolError('waiting twice')
    this.#phase = 'waiting'
    this.#jailedMs = monotonicMs()
    this.#mounted?.()
    if (this.#stop) return
    let pid: number
    try {
      pid = requireUnderLimits(this.#slot, slotPid)
    } catch (error) {
      void this.#slot.condemn(`the process is not under its limits: ${(error as Error).message}`)
      return
    }
    this.#slot.cgroup.beginUsage()
    this.#connect(pid, [encodeFrame(toGuest.go, this.#number)])
  }

  /** Starts the program, when the network of its jail is open where it has one. */
  #connect(pid: number, frames: Buffer[]): void {
    if (this.#network === undefined) {
      this.#start(pid, frames)
      return
    }
    openNetwork(this.#slot, pid, this.#network).then(
      () => {
        if (this.#phase === 'waiting' && !this.#stop) this.#start(pid, frames)
      },
      (error: Error) => void this.#slot.condemn(`the network of its jail could not be opened: ${error.message}`),
    )
  }

  #start(pid: number, frames: Buffer[]): void {
    this.#slot.guest.send(frames)
    this.#phase = 'running'
    this.#startedMs = monotonicMs()
    const { timeoutMs, memoryBytes, cpus } = this.#limits
    this.#nextTimer(timeoutMs, () => this.#kill({ kind: 'timed_out', limitMs: timeoutMs }))
    this.#slot.sockets.begin({ pid, memoryBytes, cpus }, () => this.#kill(socketsHeld(memoryBytes)))
    this.#observer.running()
  }

  #output(stream: Stream, bytes: Buffer): void {
    if (this.#phase !== 'running') throw new GuestProtocolError('output before the start')
    // No limit would ever end a flood of these, and each costs us more than it costs the guest.
    if (bytes.length === 0) throw new GuestProtocolError('output of nothing')
    this.#window.take(bytes.length)
    const { outputSoftBytes, outputHardBytes } = this.#limits
    const room = outputHardBytes - this.#outputBytes[stream]
    this.#outputBytes[stream] += bytes.length
    if (room > 0) this.#observer.output(stream, bytes.subarray(0, room))
    if (bytes.length > room) this.#kill({ kind: 'output_limit', limitBytes: outputHardBytes })
    if (this.#outputBytes[stream] > outputSoftBytes) this.#excessBytes += bytes.length
    // Also while the run is being killed: it ends only when its pipes are empty.
    this.#window.giveBack(() => this.#pauseMs())
  }

  #pauseMs(): number {
    const pauseMs = this.#observer.excess(this.#excessBytes)
    this.#excessBytes = 0
    return this.#stop ? 0 : pauseMs
  }

  #takeImages(bytes: Buffer): void {
    if (this.#phase !== 'running') throw new GuestProtocolError('images before the start')
    const creditBytes = this.#images.take(bytes)
    if (this.#images.isTooMuch) this.#kill({ kind: 'output_limit', limitBytes: picturesHardBytes })
    if (creditBytes > 0) this.#slot.guest.send([encodeCredit(toGuest.pictureCredit, this.#number, creditBytes)])
  }

  #kill(stop: Stop): void {
    if (this.#phase === 'ended' || this.#stop) return
    this.#stop = stop
    if (this.#phase !== 'queued') this.#sendKill()
    this.#window.endPause()
  }

  #sendKill(): void {
    // Its processes give back what they hold at their own speed: the limit of that speed is over.
    this.#slot.cgroup.liftProcessorLimits()
    this.#slot.guest.send([encodeFrame(toGuest.kill, this.#number)])
    this.#nextTimer(killWithinMs, () => void this.#slot.condemn('the guest did not end its run'))
  }

  #exited(exit: Exit): void {
    this.#endedMs = monotonicMs()
    if (this.#startedMs === undefined && !this.#stop) {
      this.#noJail('its main process ended before its start')
      return
    }
    // The thread that watches sockets kills before it says so.
    if (this.#slot.sockets.hasStruck) this.#stop ??= socketsHeld(this.#limits.memoryBytes)
    const usage = this.#usage()
    const survivors = this.#pids().length
    if (survivors > 0) {
      void this.#slot.condemn(`${survivors} processes outlived their jail`)
      return
    }
    this.#slot.cgroup.restoreProcessorLimits()
    const runMs = this.#end()
    this.#resolve(this.#result(endingOf(exit, this.#stop, usage.oomKills, this.#limits), usage, runMs))
  }

  #failed(frame: Frame): void {
    if (this.#startedMs !== undefined) throw new GuestProtocolError('a jail that fails after its start')
    this.#noJail(frame.payload.toString('utf8', 0, keptProblemBytes))
  }

  /** A slot that could not make a jail once is not asked again. */
  #noJail(problem: string): void {
    const runMs = this.#end()
    const ending: Ending = this.#stop ?? { kind: 'failed', reason: 'jail_failed' }
    const result = this.#result(ending, this.#usage(), runMs)
    void this.#slot.condemn(`no jail could be made: ${problem}`).then(() => this.#resolve(result))
  }

  #end(): number {
    this.#phase = 'ended'
    clearTimeout(this.#timer)
    this.#window.close()
    this.#slot.sockets.end()
    this.#mounted?.()
    this.#endedMs ??= monotonicMs()
    return this.#startedMs === undefined ? 0 : this.#endedMs - this.#startedMs
  }

  /** Its processes, by their number on the host. */
  #pids(): number[] {
    return this.#slot.cgroup.runPids().filter((pid) => !this.#slot.residents.has(pid))
  }

  #usage(): Usage {
    if (this.#startedMs === undefined) return { cpuTimeMs: 0, memoryPeakBytes: 0, oomKills: 0 }
    return this.#slot.cgroup.usage()
  }

  #result(ending: Ending, usage: Usage, runMs: number): SlotRunResult {
    const endedMs = this.#endedMs ?? monotonicMs()
    const startedMs = this.#startedMs ?? endedMs
    const jailedMs = this.#jailedMs ?? startedMs
    const times = { jailMs: jailedMs - this.#requestedMs, hostMs: startedMs - jailedMs, runMs, endedMs }
    const images = this.#images.end()
    const output = { outputBytes: this.#outputBytes, ...(images && { images }) }
    return { ending, ...usage, ...output, limits: this.#limits, durationMs: runMs, ...times }
  }

  #nextTimer(ms: number, then: () => void): void {
    clearTimeout(this.#timer)
    this.#timer = setTimeout(then, ms)
  }
}

const socketsHeld = (limitBytes: number): Stop => ({ kind: 'out_of_memory', limitBytes, heldAs: 'socket_buffers' })
