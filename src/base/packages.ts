/** Packages of profiles: what all modules share. */
import type { JailNetwork } from './network.ts'

/** Packages that every run of a profile finds, and how they are installed. */
export interface ProfilePackages {
  /** Requirements of pip, such as `numpy>=2`. */
  pip: readonly string[]
  /** Packages of npm, such as `lodash@4`. */
  npm: readonly string[]
  /** Debian packages, such as `jq` or `jq=1.6-2.1`. */
  apt: readonly string[]
  /** The network of the installation. */
  network: JailNetwork
}

/** Packages of one profile. */
export const packagesMax = 256

/** The slug of the volume with the packages. Slugs of other volumes have no dots. */
export const packagesSlug = 'profile.packages'

/** Where the packages are inside; a link of every image. */
export const packagesDir = '/opt/packages'
export const pythonPackagesDir = `${packagesDir}/python/site-packages`
export const nodePackagesDir = `${packagesDir}/node`
/** Which Debian packages the image of the machine has, in the form of dpkg. Not where dpkg has it: it would miss the rest. */
export const dpkgStatusPath = '/opt/glovebox/dpkg-status'
/** Commands of the packages. */
export const packagesBin = `${packagesDir}/bin`

/** A requirement of pip: a name with extras and versions. No options, paths or addresses. */
export const pipPattern =
  '^[A-Za-z0-9](?:[A-Za-z0-9._-]{0,98}[A-Za-z0-9])?(?:\\[[A-Za-z0-9._-]{1,64}(?:,[A-Za-z0-9._-]{1,64}){0,16}\\])?(?:(?:===?|~=|!=|>=?|<=?)[A-Za-z0-9][A-Za-z0-9.*+!_-]{0,63}(?:,(?:===?|~=|!=|>=?|<=?)[A-Za-z0-9][A-Za-z0-9.*+!_-]{0,63}){0,8})?$'

/** A package of npm: a name with a scope, and a version or a tag. No options, paths, addresses or files. */
export const npmPattern =
  '^(?!.*\\.(?:tgz|tar|tar\\.gz)$)(?:@[a-z0-9~][a-z0-9._~-]{0,99}/)?[a-z0-9~][a-z0-9._~-]{0,212}(?:@[A-Za-z0-9^~<>=*][A-Za-z0-9.*+^~<>=|_-]{0,63})?$'

/** A Debian package: a name, and a version. No options, patterns, paths or architectures, and no `-` that removes it. */
export const aptPattern = '^[a-z0-9][a-z0-9+.-]{0,98}[a-z0-9+](?:=[0-9][A-Za-z0-9.+:~-]{0,99})?$'
