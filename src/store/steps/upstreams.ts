import type { Kysely } from 'kysely'
import { createUpstreamSearch, indexUpstream } from '../sqlite-upstreams.ts'
import type { Tables } from '../tables.ts'

/** Adds the MCP servers behind the gateway, and the counts of their calls. */
export async function addUpstreams(db: Kysely<Tables>): Promise<void> {
  await db.schema
    .createTable('upstreams')
    .addColumn('id', 'text', (column) => column.primaryKey())
    .addColumn('orgId', 'text', (column) => column.notNull().references('orgs.id'))
    .addColumn('name', 'text', (column) => column.notNull())
    .addColumn('displayName', 'text', (column) => column.notNull())
    .addColumn('description', 'text', (column) => column.notNull())
    .addColumn('tags', 'text', (column) => column.notNull())
    .addColumn('url', 'text', (column) => column.notNull())
    .addColumn('timeoutMs', 'integer', (column) => column.notNull())
    .addColumn('enabled', 'integer', (column) => column.notNull())
    .addColumn('secrets', 'text', (column) => column.notNull())
    .addColumn('listing', 'text')
    .addColumn('listedAt', 'text')
    .addColumn('changedListing', 'text')
    .addColumn('createdAt', 'text', (column) => column.notNull())
    .addColumn('updatedAt', 'text', (column) => column.notNull())
    .addUniqueConstraint('upstreamsByName', ['orgId', 'name'])
    .execute()
  await db.schema
    .createTable('upstreamUsage')
    .addColumn('orgId', 'text', (column) => column.notNull().references('orgs.id'))
    .addColumn('day', 'text', (column) => column.notNull())
    .addColumn('keyId', 'text', (column) => column.notNull().references('keys.id'))
    .addColumn('upstream', 'text', (column) => column.notNull())
    .addColumn('tool', 'text', (column) => column.notNull())
    .addColumn('calls', 'bigint', (column) => column.notNull())
    .addColumn('failures', 'bigint', (column) => column.notNull())
    .addColumn('latencyMs', 'bigint', (column) => column.notNull())
    .addColumn('bytes', 'bigint', (column) => column.notNull())
    .addPrimaryKeyConstraint('upstreamUsagePrimary', ['orgId', 'day', 'keyId', 'upstream', 'tool'])
    .execute()
}

/** Adds the credentials of keys for upstreams, and the tokens of logins. */
export async function addUpstreamCredentials(db: Kysely<Tables>): Promise<void> {
  await db.schema
    .alterTable('upstreams')
    .addColumn('credentialMode', 'text', (column) => column.notNull().defaultTo('shared'))
    .execute()
  await db.schema
    .createTable('upstreamCredentials')
    .addColumn('upstreamId', 'text', (column) => column.notNull())
    .addColumn('keyId', 'text', (column) => column.notNull())
    .addColumn('secrets', 'text')
    .addColumn('pendingLogin', 'text')
    .addColumn('updatedAt', 'text', (column) => column.notNull())
    .addPrimaryKeyConstraint('upstreamCredentialsPrimary', ['upstreamId', 'keyId'])
    .execute()
}

/** Adds the limits of keys at upstreams. */
export async function addUpstreamPolicies(db: Kysely<Tables>): Promise<void> {
  await db.schema.alterTable('keys').addColumn('upstreamPolicy', 'text').execute()
}

/** Adds the transport of upstreams. */
export async function addUpstreamTransports(db: Kysely<Tables>): Promise<void> {
  await db.schema
    .alterTable('upstreams')
    .addColumn('transport', 'text', (column) => column.notNull().defaultTo('http'))
    .execute()
}

/** Adds the full-text index of upstreams and their tools. */
export async function addUpstreamSearch(db: Kysely<Tables>): Promise<void> {
  await createUpstreamSearch(db)
  for (const upstream of await db.selectFrom('upstreams').selectAll().execute()) await indexUpstream(db, upstream)
}
