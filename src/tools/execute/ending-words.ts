import type { Ending } from '../../base/run.ts'

/** Formats a size: `134217728` as `128 MiB`, `1500` as `1500 bytes`. */
export function bytesInWords(bytes: number): string {
  const units = ['bytes', 'KiB', 'MiB', 'GiB', 'TiB'] as const
  let amount = bytes
  let unit = 0
  while (amount >= 1024 && Number.isInteger((amount / 1024) * 10) && unit < units.length - 1) {
    amount /= 1024
    unit++
  }
  return `${amount} ${units[unit]}`
}

/** Formats a duration: `1500` as `1.5 s`. */
export const secondsInWords = (ms: number): string => `${Number((ms / 1000).toFixed(3))} s`

/** Describes an ending in one clause for people and models, with a remedy if there is one. */
export function endingInWords(ending: Ending): string {
  switch (ending.kind) {
    case 'exited':
      return `exited with code ${ending.code}`
    case 'signaled':
      return `ended by signal ${/^\d+$/.test(ending.signal) ? ending.signal : `SIG${ending.signal}`}`
    case 'timed_out':
      return `killed after ${secondsInWords(ending.limitMs)} (timed out)`
    case 'out_of_memory':
      return ending.heldAs === 'socket_buffers'
        ? `killed for holding too much memory in socket buffers that nothing reads, beside its limit of ${bytesInWords(ending.limitBytes)} (out of memory)`
        : `killed for using more than ${bytesInWords(ending.limitBytes)} of memory (out of memory)`
    case 'output_limit':
      return `killed for writing more than ${bytesInWords(ending.limitBytes)} to one stream (output limit)`
    case 'disk_quota':
      return ending.disk === 'server'
        ? 'killed because the disk of the server is nearly full (disk quota); delete threads or files that are not needed, or retry later'
        : `failed because its storage was full (disk quota: ${bytesInWords(ending.limitBytes)} and a limited number of files); delete files that are not needed`
    case 'cancelled':
      return 'cancelled'
    case 'shutdown':
      return 'killed because the server is shutting down; retry later'
    case 'failed':
      if (ending.reason === 'files_lost')
        return 'failed because the disk of the server could not store files that the program wrote (files_lost); check the files and retry later'
      return `failed because of a server error (${ending.reason}); the program may have run partially`
  }
}
