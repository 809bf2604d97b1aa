/** What the requests of one route took. */
export interface RouteFigures {
  route: string
  requests: number
  /** Responses with status 500 or higher. */
  errors: number
  average_ms: number
  max_ms: number
}

interface Sums {
  requests: number
  errors: number
  totalMs: number
  maxMs: number
}

/** Orders in which routes are listed. */
export const routeOrders = ['requests', 'errors', 'avgLatency', 'maxLatency'] as const
export type RouteOrder = (typeof routeOrders)[number]

/** More routes than the product registers, so that none is dropped; names of routes never come from clients. */
export const routesMax = 1_000

/** Adds up the requests of each registered route. */
export class Routes {
  readonly #sums = new Map<string, Sums>()

  /** @param route method and registered path, never the requested path. */
  count(route: string, status: number, ms: number): void {
    let sums = this.#sums.get(route)
    if (sums === undefined) {
      if (this.#sums.size >= routesMax) return
      sums = { requests: 0, errors: 0, totalMs: 0, maxMs: 0 }
      this.#sums.set(route, sums)
    }
    sums.requests += 1
    sums.totalMs += ms
    if (status >= 500) sums.errors += 1
    if (ms > sums.maxMs) sums.maxMs = ms
  }

  /** The sums by route. */
  get sums(): ReadonlyMap<string, Readonly<Sums>> {
    return this.#sums
  }

  get(route: string): RouteFigures | undefined {
    const sums = this.#sums.get(route)
    return sums && toFigures(route, sums)
  }

  list(order: RouteOrder = 'requests'): RouteFigures[] {
    const by: Record<RouteOrder, (figures: RouteFigures) => number> = {
      requests: ({ requests }) => requests,
      errors: ({ errors }) => errors,
      avgLatency: (figures) => figures.average_ms,
      maxLatency: (figures) => figures.max_ms,
    }
    return [...this.#sums]
      .map(([route, sums]) => toFigures(route, sums))
      .sort((a, b) => by[order](b) - by[order](a) || (a.route < b.route ? -1 : 1))
  }

  clear(): void {
    this.#sums.clear()
  }
}

const toFigures = (route: string, { requests, errors, totalMs, maxMs }: Sums): RouteFigures => ({
  ...{ route, requests, errors },
  average_ms: Math.round((totalMs / requests) * 100) / 100,
  max_ms: Math.round(maxMs * 100) / 100,
})
