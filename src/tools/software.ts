import type { Profile } from '../base/profile.ts'
import type { Software } from '../base/software.ts'

/** Prints all packages. `pip` is not part of every image. */
export const allPackagesCommand =
  'from importlib.metadata import distributions as d; print(sorted(f"{p.name} {p.version}" for p in d()))'

/** Describes the interpreters and packages that the programs of a profile find. */
export function softwareInWords({ languages }: Profile, software: Software): string[] {
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
    ...(programs.length > 0 ? [`Programs: ${programs.join(', ')}.`] : []),
  ]
}
