import { Counter, Gauge, type Registry } from 'prom-client'
import type { PackageCacheTotals } from '../base/package-cache.ts'
import { setTotals } from './runtime-metrics.ts'

/** How an installation ended; an interrupted one begins again with the next call. */
export type InstallationOutcome = 'installed' | 'failed' | 'interrupted'

/** Figures of the package cache, and of the installations of packages that profiles list. */
export class PackageMetrics {
  readonly #requests: Counter<'manager' | 'outcome'>
  readonly #bytes: Counter<'manager' | 'direction'>
  readonly #evicted: Counter
  readonly #files: Gauge
  readonly #used: Gauge
  readonly #size: Gauge
  readonly #installations: Counter<'outcome'>
  readonly #seconds: Counter<'outcome'>
  readonly #installing: Gauge

  constructor(registry: Registry) {
    const counter = <Label extends string = never>(name: string, help: string, labelNames: Label[] = []) =>
      new Counter<Label>({ name: `glovebox_${name}`, help, labelNames, registers: [registry] })
    const gauge = (name: string, help: string) => new Gauge({ name: `glovebox_${name}`, help, registers: [registry] })
    this.#requests = counter(
      'package_cache_requests_total',
      'Requests to the package cache: documents, files that were kept or downloaded, and answers without a file.',
      ['manager', 'outcome'],
    )
    this.#bytes = counter('package_cache_bytes_total', 'Bytes served to programs, and fetched from the indexes.', [
      'manager',
      'direction',
    ])
    this.#evicted = counter('package_cache_evicted_total', 'Files that were removed to make room.')
    this.#files = gauge('package_cache_files', 'Files in the package cache.')
    this.#used = gauge('package_cache_used_bytes', 'Bytes of the files in the package cache.')
    this.#size = gauge('package_cache_size_bytes', 'The setting package_cache_size.')
    this.#installations = counter(
      'package_installations_total',
      'Installations of the packages of profiles that ended, by outcome.',
      ['outcome'],
    )
    this.#seconds = counter('package_installation_seconds_total', 'Duration of these installations.', ['outcome'])
    this.#installing = gauge('package_installations', 'Installations of the packages of profiles that run.')
  }

  /** Counts an installation that ended. @param ms its duration in milliseconds. */
  installed(outcome: InstallationOutcome, ms: number): void {
    this.#installations.inc({ outcome })
    this.#seconds.inc({ outcome }, ms / 1000)
  }

  /** @param running number of installations. */
  installing(running: number): void {
    this.#installing.set(running)
  }

  /** Shows what a runner reports of its cache. @param cache absent if it has none, or no run had a network yet. */
  tell(cache: PackageCacheTotals | undefined): void {
    const managers = Object.entries(cache?.managers ?? {})
    setTotals(
      this.#requests,
      managers.flatMap(([manager, { requests }]) =>
        Object.entries(requests).map(([outcome, count]) => [{ manager, outcome }, count] as const),
      ),
    )
    setTotals(
      this.#bytes,
      managers.flatMap(([manager, { servedBytes, fetchedBytes }]) => [
        [{ manager, direction: 'served' }, servedBytes] as const,
        [{ manager, direction: 'fetched' }, fetchedBytes] as const,
      ]),
    )
    setTotals(this.#evicted, cache === undefined ? [] : [[{}, cache.evicted]])
    if (cache === undefined) {
      for (const gauge of [this.#files, this.#used, this.#size]) gauge.remove()
      return
    }
    this.#files.set(cache.files)
    this.#used.set(cache.usedBytes)
    this.#size.set(cache.sizeBytes)
  }
}
