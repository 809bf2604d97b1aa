/** Debian packages of a profile: unpacked below /opt/packages, since the image's own /usr cannot change. */
import { dpkgStatusPath, packagesBin, packagesDir, pythonPackagesDir } from '../../base/packages.ts'

const root = `${packagesDir}/apt`

/**
 * Downloads packages with what the image lacks of their dependencies, unpacks them, and makes them usable from there:
 * - The C library remains that of the image, since a process needs the one that its loader belongs to. Newer versions of
 *   other packages of the image are used by these packages only, and their commands do not replace those of the image.
 * - Nothing is executed for the packages, so no files get a set-user-ID bit or another owner.
 * - Programs and libraries search the libraries of the packages. It is written into them, so that no variable has to
 *   change what other programs find.
 */
const script = `set -eu
umask 022
export LC_ALL=C
own="$TMPDIR/apt"
status=${dpkgStatusPath}
[ -s "$status" ] || status=/var/lib/dpkg/status
if ! [ -s "$status" ]; then
  echo 'the image has no list of Debian packages, which says what a package needs in addition' >&2
  exit 1
fi
mkdir -p "$own/lists/partial"
mkdir "$own/preferences.d"
cp /etc/apt/preferences.d/* "$own/preferences.d" 2>/dev/null || true
cat >"$own/preferences.d/image.pref" <<END
Package: libc6
Pin: release a=now
Pin-Priority: 1001
END
cat >"$own/apt.conf" <<END
Dir::State "$own";
Dir::State::lists "$own/lists";
Dir::State::status "$status";
Dir::Cache "$own";
Dir::Etc::preferencesparts "$own/preferences.d";
Dir::Log "$own";
APT::Cmd::Pattern-Only "true";
APT::Install-Recommends "false";
APT::Keep-Downloaded-Packages "true";
APT::Sandbox::User "";
Acquire::Languages "none";
Debug::NoLocking "true";
END
# Of several sources, those that cannot be read may not be needed.
apt-get -c "$own/apt.conf" -q update || true

# Downloads packages into a directory, and unpacks them in another one: fetch NAME DESTINATION PACKAGE...
fetch() {
  archives="$own/$1" destination=$2
  shift 2
  mkdir -p "$archives/partial"
  apt-get -c "$own/apt.conf" -o Dir::Cache::archives="$archives" -q --yes --no-remove --download-only install "$@"
  for directory in bin sbin lib lib32 lib64 libx32; do
    mkdir -p "$destination/usr/$directory"
    ln -sfn "usr/$directory" "$destination/$directory"
  done
  for archive in "$archives"/*.deb; do
    [ -e "$archive" ] || continue
    dpkg-deb --fsys-tarfile "$archive" >"$own/files.tar"
    tar -x -f "$own/files.tar" -C "$destination" --keep-directory-symlink --no-same-owner --no-same-permissions
    rm "$own/files.tar"
  done
}

fetch packages ${root} "$@"
cd ${root}
find . -type l -lname '/*' | while IFS= read -r link; do
  target="${root}$(readlink "$link")"
  if [ -e "$target" ]; then ln -sfn "$target" "$link"; fi
done

libraries=
for directory in usr/lib/*-linux-gnu* usr/lib usr/lib/*-linux-gnu*/blas usr/lib/*-linux-gnu*/lapack; do
  if [ -n "$(find "$directory" -maxdepth 1 -name 'lib*.so*' 2>/dev/null | head -n 1)" ]; then
    libraries="$libraries\${libraries:+:}${root}/$directory"
  fi
done
if [ -n "$libraries" ]; then
  tools="$own/tools"
  fetch patchelf "$tools" patchelf
  PATH="$tools/usr/bin:$PATH"
  toolLibraries=$(find "$tools/usr/lib" -name 'libstdc++.so.6' -printf '%h' -quit)
  edit() { LD_LIBRARY_PATH="$toolLibraries" patchelf "$@"; }
  find usr -type f '(' -perm /111 -o -name '*.so*' ')' -exec grep -la '^.ELF' {} + | while IFS= read -r file; do
    chmod u+w "$file"
    # It fails for programs without shared libraries.
    searched=$(edit --print-rpath "$file" 2>/dev/null) || continue
    searched=$(printf '%s' "$searched" | sed 's#\\(^\\|:\\)/usr/#\\1${root}/usr/#g')
    edit --set-rpath "$searched\${searched:+:}$libraries" "$file"
  done
fi

modules=${root}/usr/lib/python3/dist-packages
if [ -d "$modules" ]; then
  mkdir -p ${pythonPackagesDir}
  echo "$modules" >${pythonPackagesDir}/debian-packages.pth
  python3 -m compileall -q "$modules" >/dev/null 2>&1 || true
fi
mkdir -p ${packagesBin}
listed=$(for package in "$@"; do
  for archive in "$own/packages/\${package%%=*}"_*.deb; do
    if [ -e "$archive" ]; then dpkg-deb --fsys-tarfile "$archive" | tar -t; fi
  done
done | sed -nE 's#^[.]/(usr/)?(bin|sbin|games)/##p')
for file in usr/games/* usr/sbin/* usr/bin/*; do
  [ -x "$file" ] || continue
  name="\${file##*/}"
  if ! command -v "$name" >/dev/null || printf '%s' "$listed" | grep -qxFe "$name"; then
    ln -sfn "../apt/$file" "${packagesBin}/$name"
  fi
done
rm -rf "$own"`

/** Returns the command that installs Debian packages. */
export const debianCommand = (packages: readonly string[]): string[] => ['sh', '-c', script, 'apt', ...packages]
