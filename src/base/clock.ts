/** Milliseconds since an arbitrary point; only differences mean something. Never jumps. */
export const monotonicMs = (): number => performance.now()

/** The wall clock as rows and logs carry it: ISO 8601, UTC. */
export const timestamp = (): string => new Date().toISOString()

/** The wall clock in milliseconds, to compare with times of files; it may jump. */
export const wallMs = (): number => Date.now()
