/** Returns monotonic milliseconds since an arbitrary point; only differences are meaningful. */
export const monotonicMs = (): number => performance.now()

/** Returns the current time for rows and logs: ISO 8601, UTC. */
export const timestamp = (): string => new Date().toISOString()

/**
 * Returns the time of a clock that started with the wall clock of this process and never jumps, shifted by `laterMs`: ISO
 * 8601, UTC. For pauses that are stored; two processes agree as far as the wall clock did not jump between their starts.
 */
export const steadyTimestamp = (laterMs = 0): string =>
  new Date(performance.timeOrigin + performance.now() + laterMs).toISOString()

/** Returns the wall clock in milliseconds, for comparison with file times; it can jump. */
export const wallMs = (): number => Date.now()
