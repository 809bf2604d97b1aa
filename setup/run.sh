#!/bin/sh
# Does whatever set-up is still missing, then one command, under the Node that this project pins.
#   sh setup/run.sh start|test|check|bench|docs [arguments]
# Downloads come from npm and apt alone. When nothing changed, set-up is a few comparisons.
set -eu

root=$(cd "$(dirname "$0")/.." && pwd -P)
cd "$root"
. setup/steps.sh

[ $# -gt 0 ] || stop 64 "say what to run: start, test, check, bench or docs"
command=$1
shift

mkdir -p build 2>/dev/null || true
if ! [ -w build ] || { [ -e build/setup.lock ] && ! [ -w build/setup.lock ]; }; then
	stop 78 "$root/build cannot be written by $(id -un); run as the user whom this directory belongs to, or as root"
fi
# Two commands started at once set up one after the other. The lock is let go before the command runs.
exec 9>build/setup.lock
flock 9
case $command in
start) install_node_packages product ;;
*) install_node_packages all ;;
esac
case $command in
start | test | bench)
	install_system_packages
	build_guest
	build_addon
	;;
esac
[ "$command" != bench ] || install_bench_packages
[ "$command" != test ] || install_test_packages
exec 9>&-

PATH=$root/node_modules/.bin:$PATH
export PATH

case $command in
start)
	# A stronger word wins over this one: a flag, as everywhere, or the variable when it is set.
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
*)
	stop 64 "unknown command $command: use start, test, check, bench or docs"
	;;
esac
