# The setup steps. Each is a function that does nothing if its result is up to date. Sourced by run.sh.

# stop CODE MESSAGE: prints why setup failed and exits with CODE.
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

# stamp_of FILE...: prints a hash of the inputs of a step.
stamp_of() {
	{
		uname -m
		cat "$@" </dev/null
	} | sha256sum | cut -d ' ' -f 1
}

# is_stamped FILE STAMP: whether the step that writes FILE last ran with the inputs of STAMP.
is_stamped() {
	[ -f "$1" ] && [ "$(cat "$1")" = "$2" ]
}

# install_node_packages product|all: installs the dependencies of the product, or also the development dependencies, which
# are several times larger. The pinned Node is one of the packages, so the Node of the machine can be older.
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
	# Installed packages can be in use: add to them, and replace them only if their versions changed.
	case $has_product in
	yes) verb="install --no-save" ;;
	no) verb=ci ;;
	esac
	# No package needs its install scripts.
	npm $verb --ignore-scripts --loglevel=error "$development" --include=optional --no-audit --no-fund >&2 ||
		stop 78 "npm could not install the packages; see above"
	link_node
	[ -x node_modules/.bin/node ] ||
		stop 78 "the pinned Node does not support $(uname -s) on $(uname -m); use Linux on x86_64 or aarch64"
	printf '%s %s\n' "$wanted" "$1" >node_modules/.stamp
}

# Node also runs the programs of node and typescript. npm 9 (Debian 12) installs its package but does not link its binary.
link_node() {
	[ ! -x node_modules/.bin/node ] || return 0
	for program in node_modules/node-linux-*/bin/node; do
		[ ! -x "$program" ] || ln -sf "../${program#node_modules/}" node_modules/.bin/node
	done
}

# missing_system_packages: prints the names of missing Debian packages, one per line. Slots mount the /usr of the machine,
# so only programs below /usr count, not others in PATH.
missing_system_packages() {
	# runc is available on every Debian and supports both cgroup versions.
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
		stop 78 "these system packages are missing: $missing (Debian names); install them and retry"
	fi
	[ "$(id -u)" = 0 ] || stop 78 "these system packages are missing: $missing; run as root: $remedy"
	say "installing system packages: $missing"
	apt_install $missing || stop 78 "could not install the system packages; try: apt-get update && $remedy"
	missing=$(missing_system_packages | tr '\n' ' ')
	[ -z "$missing" ] || stop 78 "still missing after installing: $missing"
}

# Installs the programs that the benchmarks compare with, and the modules of their preloaded profile. All are optional: if
# one is missing, its row in the results states the reason.
install_bench_packages() {
	missing=$(missing_bench_packages | tr '\n' ' ' | sed 's/ $//')
	[ -n "$missing" ] || return 0
	if ! has apt-get || [ "$(id -u)" != 0 ]; then
		say "running the benchmarks without $missing: only root can install packages with apt-get"
		return 0
	fi
	say "installing packages for the benchmarks: $missing"
	for package in $missing; do
		apt_install "$package" || say "could not install $package; running the benchmarks without it"
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

# The package lists can be missing or outdated: after a failure, updates them and tries again.
apt_install() {
	DEBIAN_FRONTEND=noninteractive
	export DEBIAN_FRONTEND
	apt-get install -y -qq --no-install-recommends "$@" </dev/null >&2 && return 0
	apt-get update -qq </dev/null >&2 || return 1
	apt-get install -y -qq --no-install-recommends "$@" </dev/null >&2
}

# Installs the programs with which workspaces search and keep snapshots. Without them these tools are slower, or return how
# to install them.
install_workspace_packages() {
	missing=$({ [ -x /usr/bin/rg ] || echo ripgrep; [ -x /usr/bin/git ] || echo git; } | tr '\n' ' ' | sed 's/ $//')
	[ -n "$missing" ] || return 0
	has apt-get && [ "$(id -u)" = 0 ] || return 0
	say "installing packages for workspaces: $missing"
	apt_install $missing || say "could not install $missing; workspaces will work without"
}

# Installs what only tests use. Without one of them its tests are skipped, and the test summary counts them.
install_test_packages() {
	missing=$(missing_test_packages | tr '\n' ' ' | sed 's/ $//')
	[ -n "$missing" ] || return 0
	has apt-get && [ "$(id -u)" = 0 ] || return 0
	say "installing packages for the tests: $missing"
	for package in $missing; do
		apt_install "$package" || say "could not install $package; its tests will be skipped"
	done
}

missing_test_packages() {
	[ -d /usr/lib/python3/dist-packages/matplotlib ] || echo python3-matplotlib
	[ -d /usr/lib/python3/dist-packages/pandas ] || echo python3-pandas
	has lintian || echo lintian
	has mmdebstrap || echo mmdebstrap
	has crun || echo crun
	has podman || echo podman
	has chromium || echo chromium
}

# Builds the guest, which is process 1 of every slot.
build_guest() {
	# The agent of workspaces is not compiled.
	wanted=$(stamp_of $(find guest -type f ! -name '*.md' ! -path 'guest/workspace/*' | LC_ALL=C sort))
	if is_stamped build/guest.stamp "$wanted" && [ -x build/guest ]; then
		return 0
	fi
	say "building the guest"
	rm -f build/guest.stamp
	sh guest/build.sh build >&2 || stop 78 "could not build the guest; see above"
	[ -x build/guest ] || stop 78 "guest/build.sh did not create build/guest"
	printf '%s\n' "$wanted" >build/guest.stamp
}

# Builds the addon with the system calls that Node does not provide.
build_addon() {
	wanted=$(stamp_of src/kernel/addon/*.[ch] package-lock.json)
	if is_stamped build/kernel.stamp "$wanted" && [ -f build/kernel.node ]; then
		return 0
	fi
	say "building the kernel addon"
	rm -f build/kernel.stamp
	include=$(ls -d node_modules/node-linux-*/include/node 2>/dev/null | head -n 1)
	[ -n "$include" ] || stop 78 "the headers of the pinned Node are missing; delete node_modules and retry"
	[ -f /usr/include/linux/mount.h ] || stop 78 "the kernel's headers are missing: apt-get install linux-libc-dev"
	cc -std=c11 -O2 -Wall -Wextra -Werror -fPIC -shared -I "$include" -o build/kernel.node.new src/kernel/addon/*.c >&2 ||
		stop 78 "could not build src/kernel/addon; see above"
	# Replaced atomically, so that a running server keeps the file that it loaded.
	mv -f build/kernel.node.new build/kernel.node
	printf '%s\n' "$wanted" >build/kernel.stamp
}

# files_of PATH...: prints the files below, in an order that does not depend on the machine.
files_of() {
	find "$@" -type f | LC_ALL=C sort
}

# Builds the npm package, from which the Debian package is made. Needs the guest and the addon.
build_package() {
	wanted=$(stamp_of $(files_of src guest bin docs deploy setup README.md package.json package-lock.json))
	if is_stamped build/package.stamp "$wanted" && [ -f "$(cat build/package.path)" ]; then
		return 0
	fi
	say "building the npm package"
	rm -f build/package.stamp
	node_modules/.bin/node setup/packages/npm.ts >build/package.path || stop 78 "could not build the npm package; see above"
	printf '%s\n' "$wanted" >build/package.stamp
}

# Builds the Debian package from the npm package.
build_deb() {
	is_stamped build/deb.stamp "$wanted" && [ -f "$(cat build/deb.path)" ] && return 0
	has strip || stop 78 "strip is missing; install it: apt-get install binutils"
	say "building the Debian package"
	rm -f build/deb.stamp
	node_modules/.bin/node setup/packages/deb.ts >build/deb.path || stop 78 "could not build the Debian package; see above"
	printf '%s\n' "$wanted" >build/deb.stamp
}

# link_command DIRECTORY: makes the command available as "glovebox". Never replaces another program with this name, or the
# link of another copy of the source code that works; a link to a copy that was deleted is replaced. The link leads through
# ../etc, which runs don't see: sandboxed code reads no path of this machine from it.
link_command() {
	program=$root/bin/glovebox
	[ -x "$program" ] || return 0
	if [ "$(readlink -f "$(command -v glovebox)" 2>/dev/null)" = "$program" ]; then
		if [ "$(id -u)" = 0 ] && [ "$(readlink "$1/glovebox")" = "$program" ]; then link_new "$1" || :; fi
		return 0
	fi
	if [ "$(id -u)" = 0 ] && [ -d "$1" ] && is_free "$1" && ! has glovebox && link_new "$1"; then
		case :$PATH: in
		*":$1:"*)
			say "the command glovebox is available: $1/glovebox"
			return 0
			;;
		esac
	fi
	say "to use the command glovebox, add it to PATH: export PATH=\"$root/bin:\$PATH\""
}

# is_free DIRECTORY: whether there is nothing of this name in it, or the link to a deleted copy of this program.
is_free() {
	[ -e "$1/glovebox" ] && return 1
	for link in "$1/glovebox" "$1/../etc/glovebox-command"; do
		[ -L "$link" ] || continue
		case $(readlink "$link") in
		*/bin/glovebox | ../etc/glovebox-command) ;;
		*) return 1 ;;
		esac
	done
}

# Fails if another setup creates the link at the same time. The temporary names belong to this process alone.
link_new() {
	mkdir -p "$1/../etc" && replace_link "$program" "$1/../etc/glovebox-command" &&
		replace_link ../etc/glovebox-command "$1/glovebox"
}

# replace_link TARGET LINK
replace_link() {
	if [ -L "$2" ]; then
		ln -s "$1" "$2.$$" && mv -T "$2.$$" "$2"
	else
		ln -s "$1" "$2"
	fi 2>/dev/null
}
