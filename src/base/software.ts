import type { Language } from './run.ts'

/** What programs find in the image, as far as tool descriptions list it: at most a few kilobytes. */
export interface Software {
  interpreters: readonly { language: Language; version: string }[]
  /** Well-known Python packages that are installed, by importance. */
  pythonPackages: readonly Package[]
  /** Number of all Python packages that are installed. */
  pythonPackagesTotal: number
  /** Well-known command-line programs that are installed. */
  programs: readonly string[]
}

export interface Package {
  name: string
  version: string
}

/** What is known of an image before a runner has connected. */
export const noSoftware: Software = { interpreters: [], pythonPackages: [], pythonPackagesTotal: 0, programs: [] }
