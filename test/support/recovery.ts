/** Checks before and after a crash, for stories. */
import { expect } from 'vitest'
import { execute } from './calls.ts'
import { type Glovebox, type Place, until } from './glovebox.ts'
import { slotsOf, type Traces, tracesOf } from './machine.ts'

/** Everything except files: those of the home are meant to stay. */
export const withoutFiles = (traces: Traces): Traces => ({ ...traces, files: [] })

/** What is left of the given slots, in any form: cgroup, container, file, lease. */
export function leftOf(slotIds: readonly string[], place: Place): string[] {
  const { cgroups, containers, files, processes, mounts } = tracesOf(place)
  return [...cgroups, ...containers, ...files, ...processes, ...mounts].filter((line) =>
    slotIds.some((id) => line.includes(id)),
  )
}

export const slotIdsOf = (place: Place): string[] => slotsOf(place).map(({ id }) => id)

/** Waits until no slot is being created or ended: the number of leases equals the number of slots. */
export async function atRest(place: Place, slots: number): Promise<void> {
  await until(() => {
    const { idLeases, containers } = tracesOf(place)
    return slotIdsOf(place).length === slots && idLeases.length === slots && containers.length === slots
  }, `${slots} slots and no more`)
}

/** Waits until the server is ready, and runs code. */
export async function runsAgain(server: Glovebox): Promise<void> {
  await until(async () => (await server.readiness()) === 200, 'it is ready again', 15_000)
  expect(await execute(server.url, 'python', 'print("again")')).toMatchObject({ stdout: 'again\n', exit_code: 0 })
}

/** The ending in the row of a run; `null` while it has none. */
export const endingOf = (place: Place, runId: string): unknown => {
  const ending = place.runs().find(({ id }) => id === runId)?.ending
  return typeof ending === 'string' ? JSON.parse(ending) : ending
}
