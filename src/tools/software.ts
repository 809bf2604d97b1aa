import type { Profile } from '../base/profile.ts'
import type { Software } from '../base/software.ts'

/** Prints all packages. `pip` is not part of every image. */
export const allPackagesCommand =
  'from importlib.metadata import distributions as d; print(sorted(f"{p.name} {p.version}" for p in d()))'

/** Describes the interpreters and packages that the programs of a profile find. */
export function softwareInWords({ languages, packages: own }: Profile, software: Software): string[] {
  const { interpreters, pythonPackages, pythonPackagesTotal, programs } = software
  const versions = interpreters.filter(({ language }) => languages.includes(language)).map(({ version }) => version)
  const packages = pythonPackages.map(({ name, version }) => `${name} ${version}`)
  return [
    ...(versions.length > 0 ? [`Installed: ${versions.join(', ')}.`] : []),
    ...(languages.includes('python') && packages.length > 0
      ? [
          `Python packages: ${packages.join(', ')} (importlib.metadata.distributions() lists all ${pythonPackagesTotal}).`,
        ]
      : []),
    ...ownPackagesInWords(languages, own),
    ...(programs.length > 0 ? [`Programs: ${programs.join(', ')}.`] : []),
  ]
}

/** Models read the list with every tool description, so it is short. */
const listedMax = 40

function ownPackagesInWords(languages: Profile['languages'], own: Profile['packages']): string[] {
  const lists = [
    ['Python', languages.includes('python') ? (own?.pip ?? []) : []],
    ['Node.js', languages.includes('node') || languages.includes('typescript') ? (own?.npm ?? []) : []],
    ['Debian', own?.apt ?? []],
  ] as const
  return lists.flatMap(([language, packages]) => {
    const more = packages.length > listedMax ? `, and ${packages.length - listedMax} more` : ''
    return packages.length === 0
      ? []
      : [`Further ${language} packages: ${packages.slice(0, listedMax).join(', ')}${more}.`]
  })
}
