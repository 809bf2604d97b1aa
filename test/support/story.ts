/** What most stories open with: a server for the whole file, or places for tests that start and stop servers. */
import { afterAll, beforeAll, expect } from 'vitest'
import { type Glovebox, Place } from './glovebox.ts'

export interface Story {
  readonly place: Place
  /** @throws Error before the server has started. */
  readonly server: Glovebox
  /** The address at which the server listens. */
  readonly url: string
}

/**
 * Starts one server for all tests of a file, and removes it with everything it created after the last one.
 * @param flags of `glovebox serve`.
 * @param options `expectNoWarnings` also fails the file when the server logs a warning or an error; `program` is the path of the
 *   command that starts it.
 */
export function openStory(
  flags: readonly string[] = [],
  options: { expectNoWarnings?: boolean; program?: string } = {},
): Story {
  const place = new Place(options.program)
  let started: Glovebox | undefined
  const server = () => {
    if (started === undefined) throw new Error('the server has not started')
    return started
  }
  beforeAll(async () => {
    started = await place.start(...flags)
  })
  afterAll(async () => {
    await place.remove()
    if (options.expectNoWarnings === true) expect(server().warnings).toEqual([])
  })
  return {
    place,
    get server() {
      return server()
    },
    get url() {
      return server().url
    },
  }
}

/**
 * Returns a function that creates places. All of them are removed after the last test of the file.
 * @param path of the command that starts a server.
 */
export function disposablePlaces(path?: string): () => Place {
  const places: Place[] = []
  afterAll(async () => {
    for (const place of places) await place.remove()
  })
  return () => {
    const place = new Place(path)
    places.push(place)
    return place
  }
}
