import { auditOperations } from './admin/audit.ts'
import { historyOperations } from './admin/history.ts'
import { keyOperations } from './admin/keys.ts'
import { limitOperations } from './admin/limits.ts'
import { orgOperations } from './admin/orgs.ts'
import { profileOperations } from './admin/profiles.ts'
import { tokenOperations } from './admin/tokens.ts'
import { toolOperations } from './admin/tools.ts'
import { upstreamOperations } from './admin/upstreams.ts'
import { adminVolumeOperations } from './admin/volumes.ts'
import { catalogOperations } from './gateway/catalog.ts'
import { relayOperations } from './gateway/relay.ts'
import { healthOperations } from './health.ts'
import { mcpOperations } from './mcp.ts'
import { metricsOperation } from './metrics.ts'
import { openApiOperation } from './openapi/serve.ts'
import type { Operation } from './operation.ts'
import { blobOperations } from './rest/blobs.ts'
import { executeOperations } from './rest/execute.ts'
import { executionOperations } from './rest/executions.ts'
import { fileOperations } from './rest/files.ts'
import { threadOperations } from './rest/threads.ts'
import { volumeOperations } from './rest/volumes.ts'

/** Every operation that the server has. Routes, OpenAPI and `docs/operations.md` come from this list. */
export const operations: readonly Operation[] = [
  ...executeOperations,
  ...executionOperations,
  ...fileOperations,
  ...blobOperations,
  ...threadOperations,
  ...volumeOperations,
  ...healthOperations,
  metricsOperation,
  openApiOperation,
  ...mcpOperations,
  ...relayOperations,
  ...catalogOperations,
  ...orgOperations,
  ...keyOperations,
  ...profileOperations,
  ...adminVolumeOperations,
  ...upstreamOperations,
  ...historyOperations,
  ...limitOperations,
  ...toolOperations,
  ...auditOperations,
  ...tokenOperations,
]
