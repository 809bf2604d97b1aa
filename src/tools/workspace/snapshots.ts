import Type from 'typebox'
import { workspaceTool } from './workspace-tool.ts'

const name = Type.String({
  minLength: 1,
  maxLength: 100,
  description: 'Letters, digits, and _ . - after the first character.',
})

export const snapshotCreateTool = workspaceTool({
  name: 'snapshot_create',
  title: 'Create a snapshot',
  readOnly: false,
  idempotent: true,
  description:
    'Store all files of the workspace under a name, also those that are untracked or ignored. The Git repository of the project is not changed. An existing snapshot of this name is replaced.',
  input: { name, description: Type.Optional(Type.String({ maxLength: 4096 })) },
  reply: Type.Object({ name: Type.String(), commit: Type.String() }),
  call: (input) => ({ op: 'snapshot_create', args: input }),
  show: ({ name: made, commit }) => ({
    text: `snapshot ${made} created (${commit.slice(0, 12)})`,
    structured: { name: made, commit },
  }),
})

export const snapshotListTool = workspaceTool({
  name: 'snapshot_list',
  title: 'List snapshots',
  readOnly: true,
  description: 'List the snapshots of the workspace, newest first.',
  input: {},
  reply: Type.Object({
    snapshots: Type.Array(
      Type.Object({
        name: Type.String(),
        commit: Type.String(),
        time: Type.Integer({ maximum: 1e11 }),
        description: Type.String(),
      }),
    ),
  }),
  call: () => ({ op: 'snapshot_list', args: {} }),
  show: ({ snapshots }) => ({
    text:
      snapshots
        .map(
          ({ name: known, commit, time, description }) =>
            `${new Date(time * 1000).toISOString()} ${commit.slice(0, 12)} ${known}: ${description}`,
        )
        .join('\n') || 'no snapshots',
    structured: { snapshots },
  }),
})

export const snapshotDiffTool = workspaceTool({
  name: 'snapshot_diff',
  title: 'Compare with a snapshot',
  readOnly: true,
  description: 'Return what has changed in the workspace since a snapshot, as a unified diff.',
  input: { name },
  reply: Type.Object({ diff: Type.String(), partial: Type.Boolean(), summary: Type.String() }),
  call: (input) => ({ op: 'snapshot_diff', args: input }),
  show: ({ diff, partial, summary }) => ({
    text: diff === '' ? 'no changes' : `${diff}${partial ? '\n(the diff is longer)\n' : ''}${summary}`,
  }),
})

export const snapshotRestoreTool = workspaceTool({
  name: 'snapshot_restore',
  title: 'Restore a snapshot',
  readOnly: false,
  idempotent: true,
  description:
    'Restore all files as they were in a snapshot, and delete files that it does not contain. HEAD, branch and index of the project stay as they are.',
  input: { name },
  reply: Type.Object({ changed: Type.Array(Type.String()) }),
  call: (input) => ({ op: 'snapshot_restore', args: input }),
  show: ({ changed }, { name: restored }) => ({
    text: `restored ${restored}: ${changed.length} files changed${changed.length === 0 ? '' : `\n${changed.slice(0, 200).join('\n')}`}`,
  }),
})
