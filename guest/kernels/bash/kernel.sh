# The bash kernel: runs code that arrives on descriptor 3 and keeps the state of the shell between calls.
# guest/kernels/PROTOCOL.md specifies the frames. Core starts it with this command line, which is one line, so that the
# line numbers in messages are those of the code:
#
#   bash -c 'eval "$(<kernel.sh)"; while :; do while __glovebox_next; do eval "$__glovebox_line"; __glovebox_end $?; done; done' bash
#
# A shell that exits (exit, set -e, SIGINT) hands its state to a new one, which takes its place in the same process.

__glovebox_file=${__glovebox_file:-/opt/glovebox/kernels/bash/kernel.sh}
__glovebox_loop='eval "$(<"$__glovebox_file")"; while :; do while __glovebox_next; do eval "$__glovebox_line"; __glovebox_end $?; done; done'

__glovebox_answer() { # KIND NONCE PAYLOAD
	printf '%s %s %d\n%s' "$1" "$2" "${#3}" "$3" >&63
}

__glovebox_mark() {
	printf '\036%s\036' "$1" >&61
	printf '\036%s\036' "$1" >&62
}

__glovebox_receive() { # LENGTH; sets __glovebox_payload
	__glovebox_payload=
	[[ $1 == 0 ]] || LC_ALL=C TMOUT='' IFS='' read -r -N "$1" -u 63 __glovebox_payload
}

# Waits for the next call. What it sets runs at the top level, since declare would make local variables in a function.
__glovebox_next() {
	trap '__glovebox_exit $?' EXIT
	# A call that ended with break or continue is still open, as is one that a new shell takes over.
	[[ -z ${__glovebox_call:-} ]] || __glovebox_end "$__glovebox_status"
	while :; do
		TMOUT='' IFS=' ' read -r -u 63 __glovebox_kind __glovebox_nonce __glovebox_length || __glovebox_leave
		__glovebox_receive "$__glovebox_length"
		case $__glovebox_kind in
		env) __glovebox_env=$__glovebox_payload ;;
		stdin) __glovebox_input=$__glovebox_payload __glovebox_has_input=1 ;;
		sync)
			__glovebox_mark "$__glovebox_nonce"
			__glovebox_answer synced "$__glovebox_nonce" ''
			;;
		call)
			__glovebox_call=$__glovebox_nonce
			__glovebox_code=$__glovebox_payload
			__glovebox_line="${__glovebox_env:-} eval \"\$__glovebox_code\""
			[[ -z ${__glovebox_has_input:-} ]] || __glovebox_line+=' < <(printf %b "$__glovebox_input")'
			__glovebox_env='' __glovebox_has_input=''
			# The code sees the status of the previous one, which set -e would take for a failure.
			[[ $- == *e* ]] || __glovebox_line="__glovebox_set $__glovebox_status; $__glovebox_line"
			return 0
			;;
		esac
	done
}

__glovebox_set() { # STATUS
	return "$1"
}

__glovebox_end() { # STATUS
	local ending=exitCode
	[[ -z ${__glovebox_exited:-} ]] || ending=exited
	__glovebox_exited='' __glovebox_status=$1
	__glovebox_mark "$__glovebox_call"
	__glovebox_answer ended "$__glovebox_call" "{\"$ending\":$1}"
	__glovebox_call='' __glovebox_code='' __glovebox_input=''
}

__glovebox_leave() {
	trap - EXIT
	exit 0
}

__glovebox_exit() { # STATUS
	trap - EXIT
	# A child that a signal ends before it executes its program has this trap as well, and is no kernel.
	[[ $BASHPID == "$$" ]] || return
	__glovebox_status=$1 __glovebox_exited=1
	exec "$BASH" -c "__glovebox_file=${__glovebox_file@Q}; "'. /dev/fd/60 2>/dev/null; exec 60<&-; '"$__glovebox_loop" bash 60< <(__glovebox_dump)
}

__glovebox_dump() {
	declare -p
	declare -f
	alias -p
	shopt -p
	trap -p
	set +o
}

if [[ -z ${__glovebox_ready:-} ]]; then
	exec 61>&1 62>&2 63<&3 3<&-
	__glovebox_ready=1 __glovebox_status=0
	__glovebox_answer ready 0 "{\"version\":\"$BASH_VERSION\"}"
fi
