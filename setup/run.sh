#!/bin/sh
# Completes setup, then runs one command with the pinned version of Node.js.
#   sh setup/run.sh setup|start|test|check|bench|docs|package|deb [arguments]
# "setup" does the same as "start" before it serves, and nothing else: for image builds and CI.
# Downloads only from npm and apt. If nothing has changed, setup only compares a few hashes.
set -eu

root=$(cd "$(dirname "$0")/.." && pwd -P)
cd "$root"
. setup/steps.sh

commands="setup, start, test, check, bench, package, deb or docs"
[ $# -gt 0 ] || stop 64 "missing command: use $commands"
command=$1
shift
case $command in
setup | start | test | check | bench | docs | package | deb) ;;
*) stop 64 "unknown command $command: use $commands" ;;
esac

mkdir -p build 2>/dev/null || true
if ! [ -w build ] || { [ -e build/setup.lock ] && ! [ -w build/setup.lock ]; }; then
	stop 78 "$(id -un) cannot write to $root/build; run this as the owner of the directory, or as root"
fi
# Serializes the setup of concurrent commands. The lock is released before the command runs.
exec 9>build/setup.lock
flock 9
case $command in
setup | start) install_node_packages product ;;
*) install_node_packages all ;;
esac
case $command in
setup | start | test | bench | package | deb)
	install_system_packages
	install_workspace_packages
	build_guest
	build_addon
	;;
esac
case $command in
setup | start) link_command /usr/local/bin ;;
esac
[ "$command" != bench ] || install_bench_packages
[ "$command" != test ] || install_test_packages
case $command in
package | deb) build_package ;;
esac
[ "$command" != deb ] || build_deb
exec 9>&-

PATH=$root/node_modules/.bin:$PATH
export PATH

case $command in
setup) ;;
package) cat build/package.path ;;
deb) cat build/deb.path ;;
start)
	# Development mode is the default here. A flag, or the variable if it is set, takes precedence.
	GLOVEBOX_DEV=${GLOVEBOX_DEV:-true}
	export GLOVEBOX_DEV
	exec node src/main.ts serve "$@"
	;;
test)
	exec vitest run "$@"
	;;
check)
	tsc --noEmit
	biome check .
	exec node setup/docs.ts --check
	;;
bench)
	exec node bench/run.ts "$@"
	;;
docs)
	exec node setup/docs.ts "$@"
	;;
esac
