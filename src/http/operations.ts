import { activityOperations } from './admin/activity.ts'
import { applyOperations } from './admin/apply.ts'
import { auditOperations } from './admin/audit.ts'
import { historyOperations } from './admin/history.ts'
import { imageOperations } from './admin/images.ts'
import { keyOperations } from './admin/keys.ts'
import { limitOperations } from './admin/limits.ts'
import { orgOperations } from './admin/orgs.ts'
import { profileOperations } from './admin/profiles.ts'
import { secretOperations } from './admin/secrets.ts'
import { tokenOperations } from './admin/tokens.ts'
import { toolOperations } from './admin/tools.ts'
import { upstreamLoginOperations } from './admin/upstream-logins.ts'
import { upstreamOperations } from './admin/upstreams.ts'
import { adminVolumeOperations } from './admin/volumes.ts'
import { watchOperations } from './admin/watch.ts'
import { consoleOperations } from './console/console.ts'
import { catalogOperations } from './gateway/catalog.ts'
import { legacySseOperations } from './gateway/legacy-sse.ts'
import { ownCredentialOperations } from './gateway/own-credentials.ts'
import { relayOperations } from './gateway/relay.ts'
import { healthOperations } from './health.ts'
import { mcpOperations } from './mcp.ts'
import { metricsOperation } from './metrics.ts'
import { microsandboxOperations } from './microsandbox.ts'
import { openApiOperation } from './openapi/serve.ts'
import type { Operation } from './operation.ts'
import { docsOperations } from './page/docs.ts'
import { pageOperations } from './page/page.ts'
import { blobOperations } from './rest/blobs.ts'
import { executeOperations } from './rest/execute.ts'
import { executionOperations } from './rest/executions.ts'
import { fileOperations } from './rest/files.ts'
import { codeOperations } from './rest/sandboxes/code.ts'
import { sandboxFileOperations } from './rest/sandboxes/files.ts'
import { lifecycleOperations } from './rest/sandboxes/lifecycle.ts'
import { portOperations } from './rest/sandboxes/ports.ts'
import { processOperations } from './rest/sandboxes/processes.ts'
import { threadOperations } from './rest/threads.ts'
import { volumeOperations } from './rest/volumes.ts'
import { workspaceOperations } from './rest/workspaces.ts'
import { runtimeOperations } from './runtime/rpc.ts'
import { eventOperations } from './sse.ts'

/** Every operation that the server has. Routes, OpenAPI and `docs/operations.md` come from this list. */
export const operations: readonly Operation[] = [
  ...executeOperations,
  ...executionOperations,
  ...fileOperations,
  ...blobOperations,
  ...threadOperations,
  ...volumeOperations,
  ...pageOperations,
  ...docsOperations,
  ...lifecycleOperations,
  ...processOperations,
  ...codeOperations,
  ...sandboxFileOperations,
  ...workspaceOperations,
  ...portOperations,
  ...healthOperations,
  metricsOperation,
  openApiOperation,
  ...mcpOperations,
  ...microsandboxOperations,
  ...eventOperations,
  ...relayOperations,
  ...legacySseOperations,
  ...catalogOperations,
  ...ownCredentialOperations,
  ...orgOperations,
  ...applyOperations,
  ...keyOperations,
  ...profileOperations,
  ...adminVolumeOperations,
  ...secretOperations,
  ...imageOperations,
  ...runtimeOperations,
  ...upstreamOperations,
  ...upstreamLoginOperations,
  ...historyOperations,
  ...limitOperations,
  ...toolOperations,
  ...auditOperations,
  ...activityOperations,
  ...watchOperations,
  ...consoleOperations,
  ...tokenOperations,
]
