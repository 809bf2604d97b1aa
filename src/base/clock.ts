/** Returns monotonic milliseconds since an arbitrary point; only differences are meaningful. */
export const monotonicMs = (): number => performance.now()

/** Returns the current time for rows and logs: ISO 8601, UTC. */
export const timestamp = (): string => new Date().toISOString()

/** Returns the wall clock in milliseconds, for comparison with file times; it can jump. */
export const wallMs = (): number => Date.now()
