import { Refusal } from '../../../base/errors.ts'
import type { UpstreamRow } from '../../../store/upstream-rows.ts'
import { checkedCredential, checkedHeaders, checkedOAuth } from '../../upstreams/checks.ts'
import { checkedProgram, checkedVariables, programOf } from '../../upstreams/programs/program.ts'
import { openSecrets } from '../../upstreams/secrets.ts'
import { toPlace } from '../upstream-place.ts'
import { toProgramSettings, toView } from '../upstream-view.ts'
import {
  blankUpstream,
  checkUpstreamSettings,
  createUpstream,
  removeUpstream,
  type UpstreamSettings,
  updateUpstream,
} from '../upstreams.ts'
import type { DeclaredOrg } from './declaration.ts'
import { changedFields, checksOf, everyRow } from './differences.ts'
import type { OrgWork } from './org-work.ts'

type Declared = NonNullable<DeclaredOrg['upstreams']>

/** What absent settings of a declared upstream mean. */
const defaultsOf = (name: string, given: UpstreamSettings): UpstreamSettings => ({
  ...{ display_name: name, description: '', capability_tags: [], url: '' },
  ...{ timeout_ms: 30_000, enabled: true, credential_mode: 'shared' },
  ...{ headers: {}, credential: null, oauth: null, env: {} },
  ...(isProgram(given) ? { transport: 'stdio', program: {} } : { transport: 'http' }),
})

const isProgram = ({ transport, program }: UpstreamSettings): boolean => program !== undefined || transport === 'stdio'

/** Registers and changes upstreams. Their tools are read afterwards. */
export async function applyUpstreams(org: OrgWork, declared: Declared): Promise<void> {
  const { on, admin } = org
  for (const [name, given] of Object.entries(declared)) {
    const ref = { orgId: org.id, name }
    const row = await on.store.upstreams.get(org.id, name)
    const act = async () => {
      if (row === undefined) {
        await createUpstream(on, admin, ref, given)
        org.record('create', 'upstream', name)
        org.work.toRead.push(ref)
        return
      }
      const { headers, credential, oauth = null, env = {} } = openSecrets(on.vault, row.id, row.secrets)
      const wanted = { ...defaultsOf(name, given), ...given }
      const stored = storedForm(wanted)
      const old = programOf(row)
      const program = old && toProgramSettings(old)
      const changed = changedFields(
        { ...wanted, ...stored },
        { ...toView(on, row), headers, credential, oauth, env, program },
      )
      const fields = Object.keys(changed) as (keyof UpstreamSettings)[]
      if (fields.length === 0) return
      const settings = {
        ...Object.fromEntries(fields.map((field) => [field, wanted[field]])),
        // All of it, since absent fields would keep their values.
        ...(fields.includes('program') && stored.program && { program: stored.program }),
      }
      await updateUpstream(on, admin, ref, settings)
      org.record('update', 'upstream', name, fields)
      org.work.toRead.push(ref)
    }
    const blank = row ?? blankUpstream(on, ref)
    const placed = { ...blank, ...placeOf(blank, given) }
    const checks = checksOf(given, (part) => checkUpstreamSettings(on, placed, part))
    await org.attempt(['upstreams', name], act, checks)
  }
}

/** Where the upstream is declared to be, so that its other settings can be checked; nothing if that is not valid. */
function placeOf(blank: UpstreamRow, given: UpstreamSettings): Partial<UpstreamRow> {
  try {
    return toPlace(blank, given)
  } catch (error) {
    if (error instanceof Refusal) return {}
    throw error
  }
}

/** The secrets and the program in the form in which they are stored. @throws Refusal invalid_argument. */
const storedForm = ({ headers = {}, credential, oauth, env = {}, program }: UpstreamSettings) => ({
  env: checkedVariables(env),
  program: program === undefined ? null : toProgramSettings(checkedProgram(program, null)),
  headers: checkedHeaders(headers),
  credential: credential ? checkedCredential(credential) : null,
  oauth: oauth ? checkedOAuth(oauth) : null,
})

/** Removes the upstreams that are not declared. */
export async function pruneUpstreams(org: OrgWork, declared: Declared): Promise<void> {
  const { on, admin, id: orgId } = org
  const rows = await everyRow(
    ({ name }: UpstreamRow) => name,
    (after, limit) => on.store.upstreams.page(orgId, after, limit),
  )
  const others = rows.filter(({ name }) => !Object.hasOwn(declared, name))
  await org.prune('upstreams', others, async ({ name }) => {
    await removeUpstream(on, admin, { orgId, name })
    org.record('delete', 'upstream', name)
  })
}
