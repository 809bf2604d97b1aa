#!/bin/sh
# Installs all packages of /debs into an empty directory, without a network. Runs in a builder.
#   install-packages.sh TARGET FIRST…
# FIRST are the files of the essential packages, which the scripts of all others rely on.
set -eu

target=$1
shift
export DEBIAN_FRONTEND=noninteractive DEBCONF_NONINTERACTIVE_SEEN=true LC_ALL=C.UTF-8 HOME=/root
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin

say() {
	printf 'progress: %s\n' "$1"
}

# Nothing is kept of an earlier attempt.
find "$target" -mindepth 1 -delete
mkdir -p "$target/usr" "$target/etc/dpkg/dpkg.cfg.d" "$target/var/lib/dpkg" "$target/proc" "$target/dev" "$target/tmp"
chmod 1777 "$target/tmp"
# Programs, libraries and data of the packages, without their documentation and translations.
cat >"$target/etc/dpkg/dpkg.cfg.d/glovebox" <<'END'
path-exclude=/usr/share/doc/*
path-include=/usr/share/doc/*/copyright
path-exclude=/usr/share/man/*
path-exclude=/usr/share/info/*
path-exclude=/usr/share/locale/*
path-exclude=/usr/share/lintian/*
force-unsafe-io
END
for name in bin sbin lib lib32 lib64 libx32; do
	mkdir "$target/usr/$name"
	ln -s "usr/$name" "$target/$name"
done

say "unpacking the base system"
for package in "$@"; do
	dpkg-deb --fsys-tarfile "/debs/$package" | tar -x -C "$target" --keep-directory-symlink
done
: >"$target/var/lib/dpkg/status"
cp "$target/usr/share/base-passwd/passwd.master" "$target/etc/passwd"
cp "$target/usr/share/base-passwd/group.master" "$target/etc/group"
: >"$target/etc/resolv.conf"
mount --bind /proc "$target/proc"
mount --rbind /dev "$target/dev"
mkdir "$target/debs"
mount --bind /debs "$target/debs"
# No service is started while packages are installed.
printf '#!/bin/sh\nexit 101\n' >"$target/usr/sbin/policy-rc.d"
chmod 755 "$target/usr/sbin/policy-rc.d"

cd "$target/debs"
say "installing the base system"
chroot "$target" sh -c 'cd /debs && dpkg --force-depends --unpack "$@"' sh "$@" >/dev/null
chroot "$target" dpkg --force-depends --configure -a >/dev/null
total=$(ls | grep -c '\.deb$')
done=0
ls | grep '\.deb$' | xargs -n 20 | while read -r packages; do
	# shellcheck disable=SC2086
	chroot "$target" sh -c 'cd /debs && dpkg --force-depends --skip-same-version --unpack "$@"' sh $packages >/dev/null
	done=$((done + $(echo "$packages" | wc -w)))
	say "unpacked $done of $total packages"
done
say "configuring $total packages"
chroot "$target" dpkg --configure -a >/dev/null
cd /
for mounted in debs dev proc; do
	umount -l "$target/$mounted"
done
rmdir "$target/debs"
rm -f "$target/usr/sbin/policy-rc.d" "$target/etc/dpkg/dpkg.cfg.d/glovebox"
rm -rf "$target/var/cache/apt" "$target/var/lib/apt/lists" "$target/var/log"/* "$target/var/cache/debconf"/*-old
for name in lib32 libx32; do
	rmdir "$target/usr/$name" 2>/dev/null && rm -f "$target/$name" || true
done
say "installed $total packages"
