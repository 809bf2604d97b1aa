/** The settings for packages of profiles. */
import Type, { type Static } from 'typebox'
import { aptPattern, npmPattern, type ProfilePackages, packagesMax, pipPattern } from './base/packages.ts'
import type { Profile } from './base/profile.ts'
import { type NetworkValues, packagesNetwork } from './network-settings.ts'
import { bytes, count, GiB, MiB, seconds, setting } from './setting.ts'

const words = Type.Array(Type.String({ maxLength: 512 }), { uniqueItems: true, maxItems: packagesMax })

const forms = {
  pip: [new RegExp(pipPattern), 'a package of pip, such as numpy or numpy>=2,<3'],
  npm: [new RegExp(npmPattern), 'a package of npm, such as lodash, lodash@4 or @scope/name@1.2.3'],
  apt: [new RegExp(aptPattern), 'a Debian package, such as jq or jq=1.6-2.1'],
} as const

function notPackages(written: PackagesWritten): string | undefined {
  for (const [manager, [pattern, form]] of Object.entries(forms)) {
    const wrong = written[manager as keyof typeof forms]?.find((word) => !pattern.test(word))
    if (wrong !== undefined)
      return `${JSON.stringify(wrong)} in ${manager} is not ${form}. Options, paths and addresses are not possible.`
  }
  return undefined
}

const packagesSchema = Type.Object(
  { pip: Type.Optional(words), npm: Type.Optional(words), apt: Type.Optional(words) },
  { additionalProperties: false },
)
type PackagesWritten = Static<typeof packagesSchema>

/** The setting of profiles. */
export const profilePackageSettings = {
  packages: setting(
    packagesSchema,
    {},
    'Packages that every run finds, by package manager: pip, npm and apt. They are installed once, before the first run.',
    { inProfiles: true, problem: notPackages },
  ),
} as const

/** The limits of installations, which are those of the server. */
export const packageSettings = {
  packages_size: setting(
    bytes(16 * MiB, 1024 * GiB),
    2 * GiB,
    'Size of the installed packages of a profile, and of the disk on which they are installed.',
    { unit: 'bytes' },
  ),
  packages_build_s: setting(seconds(1, 86_400), 900, 'Longest time for installing the packages of a profile.', {
    unit: 'seconds',
  }),
  packages_builds_max: setting(
    count(1, 100),
    2,
    'Profiles whose packages are installed at the same time; further ones wait.',
    { unit: 'count' },
  ),
  packages_builds_per_org: setting(
    count(1, 100),
    1,
    'Profiles of one organization whose packages are installed at the same time.',
    { unit: 'count' },
  ),
} as const

/**
 * Returns the packages of a profile. They are installed with its network, or with that of package managers if it has none.
 * @param network of the profile.
 */
export function toPackages(
  values: NetworkValues & { packages: PackagesWritten },
  network: Profile['network'],
): { packages?: ProfilePackages } {
  const { pip = [], npm = [], apt = [] } = values.packages
  if (pip.length + npm.length + apt.length === 0) return {}
  const sorted = { pip: [...pip].sort(), npm: [...npm].sort(), apt: [...apt].sort() }
  return { packages: { ...sorted, network: network ?? packagesNetwork(values) } }
}
