#!/bin/sh
# Builds the guest: build.sh OUTDIR [sanitize]
#   OUTDIR/guest             the static program that slots run
#   OUTDIR/python-zygote.so    what python3 is preloaded with to become a zygote; linked with the C library of this machine
# with `sanitize`, for the tests, instead:
#   OUTDIR/guest-sanitized   the same program with address and undefined-behaviour sanitizers (dynamic: a static
#                            program can't carry them)
#   OUTDIR/guest-fuzz        hostile frames, PREPARE and SPAWN records against their readers: guest-fuzz SECONDS [SEED]
#   OUTDIR/guest-agent       the agent of a sandbox by itself
set -eu

out=${1:?usage: build.sh OUTDIR [sanitize]}
mode=${2:-static}
here=$(cd "$(dirname "$0")" && pwd)
cc=${CC:-cc}
mkdir -p "$out"

warnings='-Wall -Wextra -Werror -Wconversion -Wsign-conversion -Wshadow -Wformat=2 -Wstrict-prototypes
  -Wmissing-prototypes -Wvla -Wundef -Wswitch-enum -Wimplicit-fallthrough'
standard='-std=c11 -D_GNU_SOURCE'

# build NAME FLAGS SOURCES: under a temporary name first, so that a slot never starts a half-written program
build() {
  name=$1
  flags=$2
  shift 2
  # shellcheck disable=SC2086 # flags are words
  "$cc" $standard $warnings $flags -o "$out/.$name.$$" "$@"
  mv "$out/.$name.$$" "$out/$name"
}

case $mode in
static)
  build guest '-O2 -D_FORTIFY_SOURCE=2 -fstack-protector-strong -fPIE -static-pie -s
    -Wl,-z,relro,-z,now,-z,noexecstack' "$here"/*.c "$here"/agent/*.c
  shared=''
  for name in descriptors fail filter frames ids pass seccomp seccomp-actions seccomp-sockets signals agent/become agent/request \
    agent/users; do shared="$shared $here/$name.c"; done
  # shellcheck disable=SC2086 # so are sources
  build python-zygote.so '-O2 -D_FORTIFY_SOURCE=2 -fstack-protector-strong -fPIC -shared -fvisibility=hidden -s
    -Wl,-z,relro,-z,now,-z,noexecstack' "$here"/python/*.c $shared
  ;;
sanitize)
  sanitizers='-O1 -g -fno-omit-frame-pointer -fsanitize=address,undefined -fno-sanitize-recover=all'
  build guest-sanitized "$sanitizers" "$here"/*.c "$here"/agent/*.c
  build guest-fuzz "$sanitizers -I$here" "$here/fuzz/fuzz.c" "$here/frames.c" "$here/prepare.c" "$here/fail.c" \
    "$here/agent/request.c"
  rest=''
  for source in "$here"/*.c; do [ "$source" = "$here/main.c" ] || rest="$rest $source"; done
  # shellcheck disable=SC2086 # sources are words
  build guest-agent "$sanitizers -I$here" "$here/fuzz/agent.c" "$here"/agent/*.c $rest
  ;;
*)
  echo "build.sh: unknown mode: $mode" >&2
  exit 64
  ;;
esac
