/** The settings of the gateway. */
import { bytes, count, GiB, MiB, seconds, setting } from './setting.ts'

export const upstreamSettings = {
  upstream_programs_max: setting(
    count(0, 4096),
    8,
    'Maximum number of upstream MCP servers that run as programs at once; each has a sandbox that counts for sandboxes_max.',
    { unit: 'count' },
  ),
  upstream_programs_per_org: setting(count(0, 4096), 4, 'The same for one organization.', { unit: 'count' }),
  upstream_program_memory: setting(bytes(32 * MiB, 1024 * GiB), 2 * GiB, 'Maximum memory of one such program.', {
    unit: 'bytes',
  }),
  upstream_program_disk: setting(bytes(16 * MiB, 1024 * GiB), 8 * GiB, 'Maximum disk of one such program.', {
    unit: 'bytes',
  }),
  upstream_refresh_s: setting(
    seconds(1, 86_400),
    600,
    'Time after which the tools of an upstream MCP server that is used are read again, to notice changes that it does not announce.',
    { unit: 'seconds' },
  ),
} as const
