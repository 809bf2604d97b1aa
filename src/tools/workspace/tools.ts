import type { Tool } from '../tool.ts'
import * as checks from './checks.ts'
import * as code from './code.ts'
import * as files from './files.ts'
import { reviewChangesTool } from './review.ts'
import * as search from './search.ts'
import * as secrets from './secrets.ts'
import * as shells from './shells.ts'
import * as snapshots from './snapshots.ts'

/** The tools of a coding agent, in the order in which they are listed. */
export const workspaceTools: readonly Tool[] = [
  files.readTool,
  files.writeTool,
  files.editTool,
  files.multiEditTool,
  search.globTool,
  search.grepTool,
  shells.bashTool,
  shells.bashOutputTool,
  shells.killShellTool,
  checks.runTestsTool,
  checks.runFailingTestsTool,
  checks.lastTestFailuresTool,
  checks.runLintTool,
  checks.runTypecheckTool,
  checks.runScriptTool,
  code.testsCoveringTool,
  code.searchCodeTool,
  code.symbolsTool,
  code.findDefinitionTool,
  code.findReferencesTool,
  code.renameSymbolTool,
  code.editFunctionBodyTool,
  code.insertAfterMethodTool,
  code.changeFunctionSignatureTool,
  snapshots.snapshotCreateTool,
  snapshots.snapshotListTool,
  snapshots.snapshotDiffTool,
  snapshots.snapshotRestoreTool,
  reviewChangesTool,
  code.renderMermaidTool,
  code.renderDotTool,
  shells.watchProcessTool,
  shells.watchProcessEventsTool,
  secrets.secretTool,
  secrets.secretsAvailableTool,
]
