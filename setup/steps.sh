# The steps of set-up, each a function that does nothing when its result is there. Sourced by run.sh.

# stop CODE MESSAGE: says why set-up cannot go on.
stop() {
	printf 'glovebox: %s\n' "$2" >&2
	exit "$1"
}

say() {
	printf 'glovebox: %s\n' "$1" >&2
}

has() {
	command -v "$1" >/dev/null 2>&1
}

# stamp_of FILE...: one hash of what a step was made from.
stamp_of() {
	{
		uname -m
		cat "$@" </dev/null
	} | sha256sum | cut -d ' ' -f 1
}

# is_stamped FILE STAMP: whether the step that writes FILE last ran for STAMP.
is_stamped() {
	[ -f "$1" ] && [ "$(cat "$1")" = "$2" ]
}

# install_node_packages product|all: what the product runs on, or also what it is tested and measured with, which is
# several times as much. The pinned Node is one of the packages, so that the machine's own may be older.
install_node_packages() {
	wanted=$(stamp_of package-lock.json)
	if is_stamped node_modules/.stamp "$wanted all" && [ -x node_modules/.bin/node ]; then
		return 0
	fi
	has_product=no
	if is_stamped node_modules/.stamp "$wanted product" && [ -x node_modules/.bin/node ]; then
		[ "$1" != product ] || return 0
		has_product=yes
	fi
	has npm || stop 78 "npm is missing; install it: apt-get install npm"
	say "installing Node packages"
	case $1 in
	product) development=--omit=dev ;;
	all) development=--include=dev ;;
	esac
	# What is there may be running: it is added to, and only replaced when it is of another version.
	case $has_product in
	yes) verb="install --no-save" ;;
	no) verb=ci ;;
	esac
	# Every package is usable as it is unpacked; none needs to run code of its own here.
	npm $verb --ignore-scripts --loglevel=error "$development" --include=optional --no-audit --no-fund >&2 ||
		stop 78 "npm could not install the packages; see above"
	link_node
	[ -x node_modules/.bin/node ] ||
		stop 78 "no pinned Node for $(uname -s) on $(uname -m); Linux on x86_64 or aarch64 is needed"
	printf '%s %s\n' "$wanted" "$1" >node_modules/.stamp
}

# npm 9, which is Debian 12's, unpacks the package that holds Node but does not link its program.
link_node() {
	[ ! -x node_modules/.bin/node ] || return 0
	for program in node_modules/node-linux-*/bin/node; do
		[ ! -x "$program" ] || ln -sf "../${program#node_modules/}" node_modules/.bin/node
	done
}

# missing_system_packages: names, one per line, of what the machine lacks. Slots show the machine's own /usr,
# so what counts is what lies there, not what PATH finds elsewhere.
missing_system_packages() {
	# Of the runtimes, runc is the one that every Debian has and that works with every layout of cgroups.
	[ -x /usr/sbin/runc ] || [ -x /usr/bin/runc ] || [ -x /usr/local/sbin/runc ] || [ -x /usr/local/bin/runc ] || echo runc
	[ -x /usr/bin/python3 ] || echo python3
	[ -x /usr/bin/bash ] || [ -x /bin/bash ] || echo bash
	has cc || echo gcc
	[ -f /usr/include/stdio.h ] || echo libc6-dev
	has mount || echo mount
	has unshare || echo util-linux
	[ -x /usr/sbin/mkfs.ext4 ] || [ -x /sbin/mkfs.ext4 ] || echo e2fsprogs
}

install_system_packages() {
	missing=$(missing_system_packages | tr '\n' ' ' | sed 's/ $//')
	[ -n "$missing" ] || return 0
	remedy="apt-get install --no-install-recommends $missing"
	if ! has apt-get; then
		stop 78 "these system packages are missing: $missing (Debian's names); install them and start again"
	fi
	[ "$(id -u)" = 0 ] || stop 78 "these system packages are missing: $missing; run as root: $remedy"
	say "installing system packages: $missing"
	apt_install $missing || stop 78 "the system packages could not be installed; try: apt-get update && $remedy"
	missing=$(missing_system_packages | tr '\n' ' ')
	[ -z "$missing" ] || stop 78 "still missing after installing: $missing"
}

# What the bench measures us against, and modules for its preloaded profile. None of it is needed to be measured at all:
# what cannot be had becomes a row that says why.
install_bench_packages() {
	missing=$(missing_bench_packages | tr '\n' ' ' | sed 's/ $//')
	[ -n "$missing" ] || return 0
	if ! has apt-get || [ "$(id -u)" != 0 ]; then
		say "the bench goes on without $missing, which only root can install, with apt-get"
		return 0
	fi
	say "installing what the bench compares with: $missing"
	for package in $missing; do
		apt_install "$package" || say "$package could not be installed; the bench goes on without it"
	done
}

missing_bench_packages() {
	has crun || echo crun
	has runc || echo runc
	has bwrap || echo bubblewrap
	has podman || echo podman
	has socat || echo socat
	has rg || echo ripgrep
	for module in numpy pandas matplotlib; do
		[ -d "/usr/lib/python3/dist-packages/$module" ] || echo "python3-$module"
	done
}

# The lists may be absent or old: a first failure is answered by fetching them.
apt_install() {
	DEBIAN_FRONTEND=noninteractive
	export DEBIAN_FRONTEND
	apt-get install -y -qq --no-install-recommends "$@" </dev/null >&2 && return 0
	apt-get update -qq </dev/null >&2 || return 1
	apt-get install -y -qq --no-install-recommends "$@" </dev/null >&2
}

# What tests alone draw with. Without it theirs are skipped, which the count at the end tells.
install_test_packages() {
	[ ! -d /usr/lib/python3/dist-packages/matplotlib ] || return 0
	has apt-get && [ "$(id -u)" = 0 ] || return 0
	say "installing what tests draw figures with: python3-matplotlib"
	apt_install python3-matplotlib || say "python3-matplotlib could not be installed; tests of figures are skipped"
}

# The program that is process 1 of every slot.
build_guest() {
	wanted=$(stamp_of $(find guest -type f ! -name '*.md' | LC_ALL=C sort))
	if is_stamped build/guest.stamp "$wanted" && [ -x build/guest ]; then
		return 0
	fi
	say "building the guest"
	rm -f build/guest.stamp
	sh guest/build.sh build >&2 || stop 78 "the guest could not be built; see above"
	[ -x build/guest ] || stop 78 "guest/build.sh made no build/guest"
	printf '%s\n' "$wanted" >build/guest.stamp
}

# The system calls of the runner that Node does not offer.
build_addon() {
	wanted=$(stamp_of src/kernel/addon/*.[ch] package-lock.json)
	if is_stamped build/kernel.stamp "$wanted" && [ -f build/kernel.node ]; then
		return 0
	fi
	say "building the kernel addon"
	rm -f build/kernel.stamp
	include=$(ls -d node_modules/node-linux-*/include/node 2>/dev/null | head -n 1)
	[ -n "$include" ] || stop 78 "the headers of the pinned Node are missing; remove node_modules and start again"
	[ -f /usr/include/linux/mount.h ] || stop 78 "the kernel's headers are missing: apt-get install linux-libc-dev"
	cc -std=c11 -O2 -Wall -Wextra -Werror -fPIC -shared -I "$include" -o build/kernel.node.new src/kernel/addon/*.c >&2 ||
		stop 78 "src/kernel/addon could not be built; see above"
	# A running server keeps the file it has loaded.
	mv -f build/kernel.node.new build/kernel.node
	printf '%s\n' "$wanted" >build/kernel.stamp
}
