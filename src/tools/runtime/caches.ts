import Type from 'typebox'
import { Refusal } from '../../base/errors.ts'
import type { Cache } from '../../core/runtime/caches.ts'
import type { Runtime } from '../../core/runtime/runtime.ts'
import { limitOf, type RuntimeTool, runtimeTool } from './runtime-tool.ts'

const cacheName = { cacheName: Type.String({ maxLength: 64, description: 'Name of the cache, of cache_get_names.' }) }
const key = { key: Type.String({ maxLength: 512, description: 'A key of the cache, of cache_get_keys.' }) }

function cacheNamed({ caches }: Runtime, name: string): Cache {
  const cache = Object.hasOwn(caches, name) ? caches[name] : undefined
  if (cache === undefined) throw new Refusal('name_unknown', { what: `The cache ${name}`, tool: 'cache_get_names' })
  return cache
}

const statsOf = (name: string, cache: Cache) => ({
  name,
  size: cache.size(),
  max: cache.max,
  ttl_ms: cache.ttlMs,
  content: cache.content,
})

const allStats = ({ caches }: Runtime) => Object.entries(caches).map(([name, cache]) => statsOf(name, cache))

/** Tools for the caches of the front. They never return values. */
export const cacheTools: readonly RuntimeTool[] = [
  runtimeTool({
    name: 'cache_get_all',
    title: 'Caches',
    description: 'Every cache of the front with its size, limit, lifetime and content.',
    run: (runtime) => ({ caches: allStats(runtime) }),
  }),
  runtimeTool({
    name: 'cache_get_names',
    title: 'Names of caches',
    description: 'The names of the caches of the front.',
    run: ({ caches }) => ({ names: Object.keys(caches) }),
  }),
  runtimeTool({
    name: 'cache_get_stats',
    title: 'Figures of one cache',
    description: 'Size, limit and lifetime of one cache.',
    input: cacheName,
    run: (runtime, { cacheName: name }) => statsOf(name, cacheNamed(runtime, name)),
  }),
  runtimeTool({
    name: 'cache_get_health',
    title: 'Health of caches',
    description: 'Which caches are full: a full one reads entries again that it could keep.',
    run: (runtime) => {
      const full = allStats(runtime).filter(({ size, max }) => max > 0 && size >= max)
      return { status: full.length === 0 ? 'healthy' : 'warning', full: full.map(({ name }) => name) }
    },
  }),
  runtimeTool({
    name: 'cache_get_packages',
    title: 'Package cache',
    description:
      'Files, size, requests by outcome and bytes of the package cache for each package manager, since the broker started; null without a package cache, and before the first run with a network.',
    run: async ({ runner }) => ({ package_cache: (await runner.stats()).packages ?? null }),
  }),
  runtimeTool({
    name: 'cache_get_keys',
    title: 'Keys of a cache',
    description: 'Keys of one cache, without values. They contain IDs of organizations.',
    input: { ...cacheName, limit: limitOf(100, 1_000) },
    run: (runtime, { cacheName: name, limit = 100 }) => ({
      keys: [...cacheNamed(runtime, name).keys()].slice(0, limit),
    }),
  }),
  runtimeTool({
    name: 'cache_get_size',
    title: 'Size of a cache',
    description: 'Number of entries of one cache.',
    input: cacheName,
    run: (runtime, { cacheName: name }) => ({ size: cacheNamed(runtime, name).size() }),
  }),
  runtimeTool({
    name: 'cache_has_key',
    title: 'Look up a key',
    description: 'Whether one cache has a key.',
    input: { ...cacheName, ...key },
    run: (runtime, { cacheName: name, key: wanted }) => ({
      has: [...cacheNamed(runtime, name).keys()].includes(wanted),
    }),
  }),
  runtimeTool({
    name: 'cache_get_store_metadata',
    title: 'Kind of a cache',
    description: 'How one cache stores its entries.',
    input: cacheName,
    run: (runtime, { cacheName: name }) => ({
      ...statsOf(name, cacheNamed(runtime, name)),
      store: 'memory',
      policy: 'lru',
    }),
  }),
  runtimeTool({
    name: 'cache_clear',
    title: 'Clear a cache',
    description: 'Removes all entries of one cache. They are read again when they are needed.',
    effect: 'write',
    input: cacheName,
    run: (runtime, { cacheName: name }) => {
      cacheNamed(runtime, name).clear()
      return { cleared: [name] }
    },
  }),
  runtimeTool({
    name: 'cache_clear_item',
    title: 'Remove an entry',
    description: 'Removes one entry of one cache.',
    effect: 'write',
    input: { ...cacheName, ...key },
    run: (runtime, { cacheName: name, key: wanted }) => ({ removed: cacheNamed(runtime, name).delete(wanted) }),
  }),
  runtimeTool({
    name: 'cache_clear_all',
    title: 'Clear all caches',
    description: 'Removes all entries of every cache of the front.',
    effect: 'write',
    run: ({ caches }) => {
      for (const cache of Object.values(caches)) cache.clear()
      return { cleared: Object.keys(caches) }
    },
  }),
  runtimeTool({
    name: 'cache_reap',
    title: 'Remove expired entries',
    description: 'Removes the expired entries of one cache.',
    effect: 'write',
    input: cacheName,
    run: (runtime, { cacheName: name }) => ({ removed: cacheNamed(runtime, name).reap() }),
  }),
  runtimeTool({
    name: 'cache_reap_all',
    title: 'Remove expired entries of all caches',
    description: 'Removes the expired entries of every cache.',
    effect: 'write',
    run: ({ caches }) => ({
      removed: Object.fromEntries(Object.entries(caches).map(([name, cache]) => [name, cache.reap()])),
    }),
  }),
]
