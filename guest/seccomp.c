#include "seccomp.h"

#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "fail.h"

#if defined(__x86_64__)
#define NATIVE_ARCH AUDIT_ARCH_X86_64
#elif defined(__aarch64__)
#define NATIVE_ARCH AUDIT_ARCH_AARCH64
#else
#error "the system call table knows x86-64 and aarch64"
#endif

/* Newer than some kernel headers; the number is the same on every architecture. */
#ifndef SYS_fchmodat2
#define SYS_fchmodat2 452
#endif

enum action {
	missing, /* not in the table */
	allow,
	nothing,
	eperm,
	check_clone,
	check_ioctl,
	check_mknod,
	check_mknodat,
	check_personality,
	check_prctl,
	check_seccomp,
	check_setsockopt,
	check_socket,
	check_socketpair,
	ACTIONS
};

struct call {
	uint32_t number;
	enum action action;
};

#define GROUP(reason)
#define CALL(action, name) {SYS_##name, action},
#if defined(__x86_64__)
#define OLD_CALL(action, name) CALL(action, name)
#else
#define OLD_CALL(action, name)
#endif
static struct call table[] = {
#include "seccomp-table.h"
};
#define CALLS (sizeof(table) / sizeof(table[0]))

/* Neighbouring numbers with one action; the gaps between calls are runs of `missing`. */
static struct call spans[2 * CALLS + 2];
static size_t span_count;

static struct sock_filter program[BPF_MAXINSNS];
static size_t length;

/* Jumps out of the search tree that wait to learn where the check of an action begins. */
static struct {
	size_t at;
	enum action action;
} pending[2 * CALLS + 2];
static size_t pending_count;

static void emit(uint16_t code, uint32_t value, uint8_t jump_true, uint8_t jump_false)
{
	if (length < BPF_MAXINSNS)
		program[length] = (struct sock_filter){code, jump_true, jump_false, value};
	length++; /* beyond the end: seccomp_build refuses */
}

static void answer(uint32_t verdict)
{
	emit(BPF_RET | BPF_K, verdict, 0, 0);
}

static void answer_error(int error)
{
	answer(SECCOMP_RET_ERRNO | (uint32_t)error);
}

/* The low half only: every argument that is looked at is 32 bits wide to the kernel, which ignores the rest, and so
 * must the filter. Both architectures are little-endian. */
static void load_argument(unsigned index)
{
	emit(BPF_LD | BPF_W | BPF_ABS, (uint32_t)(offsetof(struct seccomp_data, args) + index * 8), 0, 0);
}

static void if_equal(uint32_t value, uint32_t verdict)
{
	emit(BPF_JMP | BPF_JEQ | BPF_K, value, 0, 1);
	answer(verdict);
}

/* Opens a part that runs when the loaded word equals `value`; it ends with an answer, and then `end_part`. */
static size_t begin_part(uint32_t value)
{
	emit(BPF_JMP | BPF_JEQ | BPF_K, value, 0, 0);
	return length - 1;
}

static void end_part(size_t at)
{
	program[at].jf = (uint8_t)(length - at - 1);
}

#define REFUSE(error) (SECCOMP_RET_ERRNO | (uint32_t)(error))

static void emit_check_clone(void)
{
	const uint32_t namespaces = CLONE_NEWNS | CLONE_NEWCGROUP | CLONE_NEWUTS | CLONE_NEWIPC | CLONE_NEWUSER |
				    CLONE_NEWPID | CLONE_NEWNET;

	load_argument(0);
	emit(BPF_JMP | BPF_JSET | BPF_K, namespaces, 0, 1);
	answer_error(EPERM);
	answer(SECCOMP_RET_ALLOW);
}

/* TIOCSTI types into a terminal, TIOCLINUX pastes into a console, TIOCSETD loads a line discipline by its number. */
static void emit_check_ioctl(void)
{
	load_argument(1);
	if_equal(TIOCSTI, REFUSE(EPERM));
	if_equal(TIOCLINUX, REFUSE(EPERM));
	if_equal(TIOCSETD, REFUSE(EPERM));
	answer(SECCOMP_RET_ALLOW);
}

static void emit_check_mode(unsigned index)
{
	load_argument(index);
	emit(BPF_ALU | BPF_AND | BPF_K, S_IFMT, 0, 0);
	if_equal(S_IFCHR, REFUSE(EPERM));
	if_equal(S_IFBLK, REFUSE(EPERM));
	answer(SECCOMP_RET_ALLOW);
}

/* The values a container of Docker has, plus ADDR_NO_RANDOMIZE, which weakens only the caller and which sanitizers
 * ask for. 0xffffffff only reads. */
static void emit_check_personality(void)
{
	static const uint32_t harmless[] = {0x0, 0x8, 0x20000, 0x20008, 0x40000, 0xffffffff};

	load_argument(0);
	for (size_t i = 0; i < sizeof(harmless) / sizeof(harmless[0]); i++)
		if_equal(harmless[i], SECCOMP_RET_ALLOW);
	answer_error(EPERM);
}

/* What acts on the caller alone. Left out, among others: PR_SET_MM, PR_SCHED_CORE, PR_SET_PTRACER. */
static void emit_check_prctl(void)
{
	static const uint32_t harmless[] = {
		PR_SET_PDEATHSIG, PR_GET_PDEATHSIG, PR_GET_DUMPABLE, PR_SET_DUMPABLE, PR_GET_KEEPCAPS,
		PR_SET_KEEPCAPS, PR_SET_NAME, PR_GET_NAME, PR_GET_SECCOMP, PR_SET_SECCOMP, PR_CAPBSET_READ,
		PR_CAPBSET_DROP, PR_GET_TSC, PR_GET_SECUREBITS, PR_SET_TIMERSLACK, PR_GET_TIMERSLACK,
		PR_SET_CHILD_SUBREAPER, PR_GET_CHILD_SUBREAPER, PR_SET_NO_NEW_PRIVS, PR_GET_NO_NEW_PRIVS,
		PR_GET_TID_ADDRESS, PR_SET_THP_DISABLE, PR_GET_THP_DISABLE, PR_CAP_AMBIENT, PR_SVE_SET_VL,
		PR_SVE_GET_VL, PR_GET_SPECULATION_CTRL, PR_SET_SPECULATION_CTRL, PR_PAC_RESET_KEYS,
		PR_SET_TAGGED_ADDR_CTRL, PR_GET_TAGGED_ADDR_CTRL, PR_SET_VMA,
	};

	load_argument(0);
	for (size_t i = 0; i < sizeof(harmless) / sizeof(harmless[0]); i++)
		if_equal(harmless[i], SECCOMP_RET_ALLOW);
	answer_error(EINVAL);
}

/* Filters may be added, without a listener (which could answer for other processes) and without FLAG_LOG (which
 * writes into the machine's log). */
static void emit_check_seccomp(void)
{
	const uint32_t flags = SECCOMP_FILTER_FLAG_TSYNC | SECCOMP_FILTER_FLAG_SPEC_ALLOW |
			       SECCOMP_FILTER_FLAG_TSYNC_ESRCH;

	load_argument(0);
	if_equal(SECCOMP_SET_MODE_STRICT, SECCOMP_RET_ALLOW);
	if_equal(SECCOMP_GET_ACTION_AVAIL, SECCOMP_RET_ALLOW);
	size_t filter = begin_part(SECCOMP_SET_MODE_FILTER);
	load_argument(1);
	emit(BPF_JMP | BPF_JSET | BPF_K, ~flags, 0, 1);
	answer_error(EPERM);
	answer(SECCOMP_RET_ALLOW);
	end_part(filter);
	answer_error(EINVAL);
}

/* linux/in.h and linux/tcp.h do not go together with the C library's own; these are the kernel's ABI. */
#define LEVEL_IP 0u
#define LEVEL_TCP 6u
#define LEVEL_IPV6 41u
#define OPTION_TCP_ULP 31u
#define OPTION_NETFILTER_FIRST 64u
#define OPTION_NETFILTER_END 96u

/* Filters on sockets are BPF programs; TCP_ULP loads protocol modules (TLS in the kernel and others); options 64 to
 * 95 of IP and IPv6 are netfilter's tables. */
static void emit_check_setsockopt(void)
{
	static const uint32_t internet[] = {LEVEL_IP, LEVEL_IPV6};

	load_argument(1);
	size_t part = begin_part(SOL_SOCKET);
	load_argument(2);
	if_equal(SO_ATTACH_FILTER, REFUSE(EPERM));
	if_equal(SO_ATTACH_BPF, REFUSE(EPERM));
	if_equal(SO_ATTACH_REUSEPORT_CBPF, REFUSE(EPERM));
	if_equal(SO_ATTACH_REUSEPORT_EBPF, REFUSE(EPERM));
	answer(SECCOMP_RET_ALLOW);
	end_part(part);

	part = begin_part(LEVEL_TCP);
	load_argument(2);
	if_equal(OPTION_TCP_ULP, REFUSE(EPERM));
	answer(SECCOMP_RET_ALLOW);
	end_part(part);

	for (size_t i = 0; i < sizeof(internet) / sizeof(internet[0]); i++) {
		part = begin_part(internet[i]);
		load_argument(2);
		emit(BPF_JMP | BPF_JGE | BPF_K, OPTION_NETFILTER_FIRST, 0, 2);
		emit(BPF_JMP | BPF_JGE | BPF_K, OPTION_NETFILTER_END, 1, 0);
		answer_error(EPERM);
		answer(SECCOMP_RET_ALLOW);
		end_part(part);
	}
	answer(SECCOMP_RET_ALLOW);
}

#define SOCKET_TYPE_MASK 0xfu /* the rest are SOCK_CLOEXEC and SOCK_NONBLOCK */
#define PROTOCOL_ANY 0u
#define PROTOCOL_TCP 6u
#define PROTOCOL_UDP 17u
#define PROTOCOL_NETLINK_ROUTE 0u

static void emit_internet_socket(uint32_t family)
{
	size_t part = begin_part(family);

	load_argument(1);
	emit(BPF_ALU | BPF_AND | BPF_K, SOCKET_TYPE_MASK, 0, 0);
	emit(BPF_JMP | BPF_JEQ | BPF_K, SOCK_STREAM, 2, 0);
	emit(BPF_JMP | BPF_JEQ | BPF_K, SOCK_DGRAM, 1, 0);
	answer_error(EPERM);
	load_argument(2);
	if_equal(PROTOCOL_ANY, SECCOMP_RET_ALLOW);
	if_equal(PROTOCOL_TCP, SECCOMP_RET_ALLOW);
	if_equal(PROTOCOL_UDP, SECCOMP_RET_ALLOW);
	answer_error(EPROTONOSUPPORT);
	end_part(part);
}

static void emit_check_socket(void)
{
	load_argument(0);
	if_equal(AF_UNIX, SECCOMP_RET_ALLOW);
	emit_internet_socket(AF_INET);
	emit_internet_socket(AF_INET6);
	size_t part = begin_part(AF_NETLINK);
	load_argument(2);
	if_equal(PROTOCOL_NETLINK_ROUTE, SECCOMP_RET_ALLOW);
	answer_error(EPROTONOSUPPORT);
	end_part(part);
	answer_error(EAFNOSUPPORT);
}

static void emit_check_socketpair(void)
{
	load_argument(0);
	if_equal(AF_UNIX, SECCOMP_RET_ALLOW);
	answer_error(EAFNOSUPPORT);
}

/* The instructions for one action; those of a check are many, and so stand once, behind the search tree. */
static void emit_action(enum action action)
{
	switch (action) {
	case missing: answer_error(ENOSYS); break;
	case allow: answer(SECCOMP_RET_ALLOW); break;
	case nothing: answer_error(0); break;
	case eperm: answer_error(EPERM); break;
	case check_clone: emit_check_clone(); break;
	case check_ioctl: emit_check_ioctl(); break;
	case check_mknod: emit_check_mode(1); break;
	case check_mknodat: emit_check_mode(2); break;
	case check_personality: emit_check_personality(); break;
	case check_prctl: emit_check_prctl(); break;
	case check_seccomp: emit_check_seccomp(); break;
	case check_setsockopt: emit_check_setsockopt(); break;
	case check_socket: emit_check_socket(); break;
	case check_socketpair: emit_check_socketpair(); break;
	case ACTIONS: abort();
	}
}

static int by_number(const void *left, const void *right)
{
	uint32_t a = ((const struct call *)left)->number;
	uint32_t b = ((const struct call *)right)->number;

	return a < b ? -1 : a > b;
}

static void begin_span(uint32_t number, enum action action)
{
	if (span_count > 0 && spans[span_count - 1].action == action)
		return;
	spans[span_count++] = (struct call){number, action};
}

/* x32's calls (numbers with bit 30) lie beyond the last span's start and are `missing` like all above it. */
static int find_spans(void)
{
	qsort(table, CALLS, sizeof(table[0]), by_number);
	begin_span(0, table[0].number == 0 ? table[0].action : missing);
	for (size_t i = 0; i < CALLS; i++) {
		if (i > 0 && table[i].number == table[i - 1].number) {
			errno = EEXIST;
			return fail("system call %u is in the table twice", table[i].number);
		}
		begin_span(table[i].number, table[i].action);
		if (i + 1 == CALLS || table[i + 1].number != table[i].number + 1)
			begin_span(table[i].number + 1, missing);
	}
	return 0;
}

/* A search tree over [low, high): about 7 comparisons instead of 300, also while the kernel works out, at load time,
 * which numbers it may wave through (its action cache, since 5.11). */
static void emit_tree(size_t low, size_t high)
{
	if (high - low == 1) {
		if (spans[low].action < check_clone) {
			emit_action(spans[low].action);
			return;
		}
		pending[pending_count].at = length;
		pending[pending_count++].action = spans[low].action;
		emit(BPF_JMP | BPF_JA, 0, 0, 0);
		return;
	}
	size_t middle = low + (high - low) / 2;
	emit(BPF_JMP | BPF_JGE | BPF_K, spans[middle].number, 0, 1);
	size_t to_upper = length;
	emit(BPF_JMP | BPF_JA, 0, 0, 0);
	emit_tree(low, middle);
	program[to_upper].k = (uint32_t)(length - to_upper - 1);
	emit_tree(middle, high);
}

static void emit_checks(void)
{
	for (enum action action = check_clone; action < ACTIONS; action++) {
		bool used = false;
		for (size_t i = 0; i < pending_count; i++) {
			if (pending[i].action != action)
				continue;
			program[pending[i].at].k = (uint32_t)(length - pending[i].at - 1);
			used = true;
		}
		if (used)
			emit_action(action);
	}
}

int seccomp_build(void)
{
	if (find_spans() < 0)
		return -1;
	emit(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, arch), 0, 0);
	emit(BPF_JMP | BPF_JEQ | BPF_K, NATIVE_ARCH, 1, 0);
	answer(SECCOMP_RET_KILL_PROCESS);
	emit(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr), 0, 0);
	emit_tree(0, span_count);
	emit_checks();
	if (length > BPF_MAXINSNS) {
		errno = E2BIG;
		return fail("the system call filter");
	}
	return 0;
}

int seccomp_load(void)
{
	struct sock_fprog filter = {.len = (unsigned short)length, .filter = program};

	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
		return fail("no_new_privs");
	if (syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &filter) < 0)
		return fail("load the system call filter");
	return 0;
}
