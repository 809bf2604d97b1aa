import { connectInJail, type NetworkOfJail, openNetwork } from '../jails/jail-network.ts'
import { OutputWindow } from '../jails/output-window.ts'
import {
  type Exit,
  encodeFrame,
  exitOf,
  type Frame,
  fromGuest,
  GuestProtocolError,
  inputWindowBytes,
  toGuest,
  u32Of,
} from '../slots/guest-channel.ts'
import { creditWindowBytes, jailWithinMs, type RunSlot, requireUnderLimits } from '../slots/run-slot.ts'
import { agentDecoder, encodeSandbox, encodeSpawn, type SandboxPreparation, type Spawn } from './agent-channel.ts'
import { type AgentObserver, AgentProcess } from './agent-process.ts'

/** What a sandbox is made from. */
export interface SandboxRequest extends Omit<SandboxPreparation, 'shownCpus' | 'creditBytes'> {
  /** Absent: it has none. */
  network?: NetworkOfJail | undefined
}

/** Of what a guest says about a jail that failed. */
const keptProblemBytes = 500
/** What a kill may take before the slot is ended from outside. */
const killWithinMs = 2_000

/** The long-lived jail of one sandbox: one run of its slot, in which an agent starts processes. */
export class SandboxJail {
  /** Resolves when processes can be started. @throws Error with the reason why the jail could not be made. */
  readonly ready: Promise<void>
  /** Resolves when nothing in it lives any more, with the reason. Never rejects. */
  readonly ended: Promise<string>
  /** Whether it was ended for its memory: the kernel killed its init, or its sockets held too much. */
  ranOutOfMemory = false
  readonly #slot: RunSlot
  readonly #number: number
  readonly #network: NetworkOfJail | undefined
  readonly #memoryBytes: number
  readonly #cpus: number
  readonly #mounted: () => void
  readonly #decoder = agentDecoder()
  readonly #processes = new Map<number, AgentProcess>()
  readonly #ready = Promise.withResolvers<void>()
  readonly #ended = Promise.withResolvers<string>()
  #phase: 'preparing' | 'waiting' | 'running' | 'ended' = 'preparing'
  #lastProcess = 0
  /** Of its agent, on the host. */
  #pid = 0
  readonly #window: OutputWindow
  /** For the agent: what waits for room, and the room. */
  readonly #outgoing: Buffer[] = []
  #roomBytes = inputWindowBytes
  #timer: NodeJS.Timeout

  constructor(slot: RunSlot, number: number, request: SandboxRequest) {
    this.#slot = slot
    this.#number = number
    this.#window = new OutputWindow(number, (frame) => slot.guest.send([frame]))
    this.#network = request.network
    this.#memoryBytes = request.limits.memoryBytes
    this.#cpus = request.limits.cpus
    this.ready = this.#ready.promise
    this.ready.catch(() => undefined)
    this.ended = this.#ended.promise
    this.#timer = setTimeout(() => void slot.condemn('no sandbox was made in time'), jailWithinMs)
    const preparation = { ...request, shownCpus: slot.shownCpus, creditBytes: creditWindowBytes }
    this.#mounted = slot.beginMounting()
    slot.guest.receive((frame) => this.#receive(frame))
    slot.guest.send([encodeSandbox(number, preparation)])
  }

  /**
   * Starts a process. `observer` is called until it has ended, or the sandbox has.
   * @throws RangeError when the request does not fit into one frame, or a word holds a NUL.
   */
  spawn(spawn: Spawn, observer: AgentObserver): AgentProcess {
    const number = this.#lastProcess + 1
    const frame = encodeSpawn(number, spawn)
    this.#lastProcess = number
    const process = new AgentProcess(number, (bytes) => this.#send(bytes), observer)
    this.#processes.set(number, process)
    this.#send(frame)
    return process
  }

  /** Connects to a server on its loopback. @returns a descriptor. @throws Error when nothing accepts the connection. */
  async connect(port: number): Promise<number> {
    if (this.#phase !== 'running') throw new Error('the sandbox is not running')
    return connectInJail(this.#slot, this.#pid, port)
  }

  /** Ends it now. A guest that does not obey within 2 s loses its slot. */
  kill(): void {
    if (this.#phase === 'ended') return
    this.#slot.cgroup.liftProcessorLimits()
    this.#slot.guest.send([encodeFrame(toGuest.kill, this.#number)])
    clearTimeout(this.#timer)
    this.#timer = setTimeout(() => void this.#slot.condemn('the guest did not end its sandbox'), killWithinMs)
  }

  /** The slot's guest is gone, or not to be trusted. @param dead when all is dead. */
  abandon(reason: string, dead: Promise<void>): void {
    if (this.#phase === 'ended') return
    this.#end()
    void dead.then(() => this.#settle(reason))
  }

  #send(frame: Buffer): void {
    if (this.#phase === 'ended') return
    this.#outgoing.push(frame)
    if (this.#outgoing.length > 1) return // Sent together, since each write wakes the guest and the agent.
    queueMicrotask(() => this.#pump())
  }

  /** The frames for the agent are one stream of bytes, cut anywhere. */
  #pump(): void {
    const frames: Buffer[] = []
    while (this.#roomBytes > 0 && this.#phase === 'running') {
      const first = this.#outgoing.shift()
      if (first === undefined) break
      const piece = first.subarray(0, this.#roomBytes)
      if (piece.length < first.length) this.#outgoing.unshift(first.subarray(piece.length))
      this.#roomBytes -= piece.length
      frames.push(encodeFrame(toGuest.input, this.#number, piece))
    }
    if (frames.length > 0) this.#slot.guest.send(frames)
  }

  /** BOUNDARY: every frame is checked against what may come now. */
  #receive(frame: Frame): void {
    if (frame.run !== this.#number) throw new GuestProtocolError(`a frame of run ${frame.run} during ${this.#number}`)
    if (this.#phase === 'ended') throw new GuestProtocolError('a frame of a sandbox that has ended')
    switch (frame.kind) {
      case fromGuest.waiting:
        this.#admit(u32Of(frame))
        return
      case fromGuest.stdout:
        this.#takeOutput(frame.payload)
        return
      case fromGuest.stderr:
        // Nothing inside has this stream.
        throw new GuestProtocolError('diagnostics of an agent')
      case fromGuest.inputRoom:
        this.#addRoom(u32Of(frame))
        return
      case fromGuest.exited:
        this.#exited(exitOf(frame))
        return
      case fromGuest.failed:
        if (this.#phase === 'running') throw new GuestProtocolError('a jail that fails after its start')
        void this.#fail(frame.payload.toString('utf8', 0, keptProblemBytes))
        return
      case fromGuest.pictures:
      case fromGuest.hello:
      case fromGuest.forker:
      case fromGuest.zygoteGone:
      case fromGuest.spareReady:
      case fromGuest.spareGone:
        throw new GuestProtocolError(`a frame of kind ${frame.kind} in a sandbox`)
    }
  }

  #admit(slotPid: number): void {
    if (this.#phase !== 'preparing') throw new GuestProtocolError('waiting twice')
    this.#phase = 'waiting'
    this.#mounted()
    let pid: number
    try {
      pid = requireUnderLimits(this.#slot, slotPid)
    } catch (error) {
      void this.#fail(`the agent is not under its limits: ${(error as Error).message}`)
      return
    }
    this.#pid = pid
    if (this.#network === undefined) {
      this.#go()
      return
    }
    openNetwork(this.#slot, pid, this.#network).then(
      () => this.#go(),
      (error: Error) => void this.#fail(`its network could not be opened: ${error.message}`),
    )
  }

  #go(): void {
    if (this.#phase !== 'waiting') return
    clearTimeout(this.#timer)
    this.#slot.cgroup.beginUsage()
    this.#slot.guest.send([encodeFrame(toGuest.go, this.#number)])
    this.#phase = 'running'
    this.#watchSockets()
    this.#ready.resolve()
    this.#pump()
  }

  /** The kernel knows no owner of these buffers that could be killed alone. */
  #watchSockets(): void {
    const owner = { pid: this.#pid, memoryBytes: this.#memoryBytes, cpus: this.#cpus }
    this.#slot.sockets.begin(owner, () => {
      this.ranOutOfMemory = true
      this.kill()
    })
  }

  #pids(): number[] {
    return this.#slot.cgroup.runPids().filter((pid) => !this.#slot.residents.has(pid))
  }

  #takeOutput(bytes: Buffer): void {
    if (this.#phase !== 'running') throw new GuestProtocolError('output before the start')
    if (bytes.length === 0) throw new GuestProtocolError('output of nothing')
    this.#window.take(bytes.length)
    this.#decoder.push(bytes, (frame) => {
      const process = this.#processes.get(frame.run)
      if (process === undefined) throw new GuestProtocolError(`a frame of process ${frame.run}, which does not exist`)
      process.take(frame)
      if (process.hasEnded) this.#processes.delete(frame.run)
    })
    this.#window.giveBack()
  }

  #addRoom(bytes: number): void {
    this.#roomBytes += bytes
    if (this.#roomBytes > inputWindowBytes) throw new GuestProtocolError('more room for input than its window')
    this.#pump()
  }

  #exited(exit: Exit): void {
    if (this.#phase !== 'running') {
      void this.#fail('its agent ended before its start')
      return
    }
    // No process inside can send a signal to its init.
    if (exit.how === 'signaled' && this.#slot.cgroup.oomKills() > 0) this.ranOutOfMemory = true
    // The thread that watches sockets kills before it says so.
    if (this.#slot.sockets.hasStruck) this.ranOutOfMemory = true
    const survivors = this.#pids().length
    this.#end()
    if (survivors === 0) this.#settle('its init exited')
    else
      void this.#slot
        .condemn(`${survivors} processes outlived their sandbox`)
        .then(() => this.#settle('its init exited'))
  }

  async #fail(problem: string): Promise<void> {
    this.#end()
    await this.#slot.condemn(`no sandbox could be made: ${problem}`)
    this.#settle(problem)
  }

  #end(): void {
    this.#phase = 'ended'
    this.#mounted()
    clearTimeout(this.#timer)
    this.#slot.sockets.end()
    this.#outgoing.length = 0
  }

  #settle(reason: string): void {
    this.#ready.reject(new Error(reason))
    for (const process of this.#processes.values()) process.abandon()
    this.#processes.clear()
    this.#ended.resolve(reason)
  }
}
