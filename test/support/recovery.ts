/** What stories of a crash look at before it and after. */
import { expect } from 'vitest'
import { execute } from './calls.ts'
import { type Glovebox, type Place, until } from './glovebox.ts'
import { slotsOf, type Traces, tracesOf } from './machine.ts'

/** Everything but files: those of the home are meant to stay. */
export const withoutFiles = (traces: Traces): Traces => ({ ...traces, files: [] })

/** What is left of slots that are named, in any shape: cgroup, container, file, lease. */
export function leftOf(slotIds: readonly string[], place: Place): string[] {
  const { cgroups, containers, files, processes, mounts } = tracesOf(place)
  return [...cgroups, ...containers, ...files, ...processes, ...mounts].filter((line) =>
    slotIds.some((id) => line.includes(id)),
  )
}

export const slotIdsOf = (place: Place): string[] => slotsOf(place).map(({ id }) => id)

/** Waits until making and ending of slots has come to rest: what is leased is what is there. */
export async function atRest(place: Place, slots: number): Promise<void> {
  await until(() => {
    const { idLeases, containers } = tracesOf(place)
    return slotIdsOf(place).length === slots && idLeases.length === slots && containers.length === slots
  }, `${slots} slots and no more`)
}

/** Waits until it is ready and shows that it is. */
export async function runsAgain(server: Glovebox): Promise<void> {
  await until(async () => (await server.readiness()) === 200, 'it is ready again', 15_000)
  expect(await execute(server.url, 'python', 'print("again")')).toMatchObject({ stdout: 'again\n', exit_code: 0 })
}

/** How a run ended, as its row has it; `null` while it has not. */
export const endingOf = (place: Place, runId: string): unknown => {
  const ending = place.runs().find(({ id }) => id === runId)?.ending
  return typeof ending === 'string' ? JSON.parse(ending) : ending
}
