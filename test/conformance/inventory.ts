import { ChangeFeed } from '../../src/mcp/change-feed.ts'
import type { Inventory } from '../../src/tools/catalog.ts'
import { contentTools } from './content-tools.ts'
import { inputTools } from './input-tools.ts'
import { prompts } from './prompts.ts'
import { resources, templates } from './resources.ts'
import { taskTools } from './task-tools.ts'

/** What the conformance suite expects a server to offer, on our protocol implementation and core. */
export function conformanceOffers(): { inventory: Inventory; changes: ChangeFeed } {
  const changes = new ChangeFeed({ tools: true, prompts: true, resources: true, resource: true })
  return {
    changes,
    inventory: {
      tools: [...contentTools(changes), ...inputTools, ...taskTools],
      prompts,
      resources,
      templates,
    },
  }
}
