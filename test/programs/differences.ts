import type { Seen } from './bare.ts'

const sameNames = 'Every sandbox has the same host name and user, so that nothing of the machine shows.'

/** What is different in a sandbox, and why. Whatever else a program prints is the same. */
export const differences: Readonly<Record<string, { here: Partial<Seen>; why: string }>> = {
  'python: names its machine and its user': { here: { stdout: 'glovebox baponi 1000\n' }, why: sameNames },
  'node: names its machine and its user': { here: { stdout: 'glovebox baponi\n' }, why: sameNames },
  'bash: names its machine and its user': { here: { stdout: 'glovebox\nbaponi\n' }, why: sameNames },
}
