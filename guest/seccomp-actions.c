#include "seccomp-actions.h"

#include <sched.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include "filter.h"

void allow(void)
{
	filter_answer(SECCOMP_RET_ALLOW);
}

void nothing(void)
{
	filter_answer_error(0);
}

void eperm(void)
{
	filter_answer_error(EPERM);
}

void missing(void)
{
	filter_answer_error(ENOSYS);
}

void check_clone(void)
{
	const uint32_t namespaces = CLONE_NEWNS | CLONE_NEWCGROUP | CLONE_NEWUTS | CLONE_NEWIPC | CLONE_NEWUSER |
				    CLONE_NEWPID | CLONE_NEWNET;

	filter_load_argument(0);
	filter_emit(BPF_JMP | BPF_JSET | BPF_K, namespaces, 0, 1);
	filter_answer_error(EPERM);
	filter_answer(SECCOMP_RET_ALLOW);
}

/* TIOCSTI types into a terminal, TIOCLINUX pastes into a console, TIOCSETD loads a line discipline by its number. */
void check_ioctl(void)
{
	filter_load_argument(1);
	filter_if_equal(TIOCSTI, FILTER_REFUSE(EPERM));
	filter_if_equal(TIOCLINUX, FILTER_REFUSE(EPERM));
	filter_if_equal(TIOCSETD, FILTER_REFUSE(EPERM));
	filter_answer(SECCOMP_RET_ALLOW);
}

static void check_flag(unsigned index, uint32_t flag, int error)
{
	filter_load_argument(index);
	filter_emit(BPF_JMP | BPF_JSET | BPF_K, flag, 0, 1);
	filter_answer_error(error);
	filter_answer(SECCOMP_RET_ALLOW);
}

/* Huge pages that a machine has set aside are counted by no memory limit, and anybody may map them. The errors are
 * those of a machine that has none. */
void check_mmap(void)
{
	check_flag(3, MAP_HUGETLB, ENOMEM);
}

void check_memfd_create(void)
{
	check_flag(1, MFD_HUGETLB, ENOSYS);
}

static void check_mode(unsigned index)
{
	filter_load_argument(index);
	filter_emit(BPF_ALU | BPF_AND | BPF_K, S_IFMT, 0, 0);
	filter_if_equal(S_IFCHR, FILTER_REFUSE(EPERM));
	filter_if_equal(S_IFBLK, FILTER_REFUSE(EPERM));
	filter_answer(SECCOMP_RET_ALLOW);
}

void check_mknod(void)
{
	check_mode(1);
}

void check_mknodat(void)
{
	check_mode(2);
}

/* The values a container of Docker has, plus ADDR_NO_RANDOMIZE, which weakens only the caller and which sanitizers
 * ask for. 0xffffffff only reads. */
void check_personality(void)
{
	static const uint32_t harmless[] = {0x0, 0x8, 0x20000, 0x20008, 0x40000, 0xffffffff};

	filter_load_argument(0);
	for (size_t i = 0; i < sizeof(harmless) / sizeof(harmless[0]); i++)
		filter_if_equal(harmless[i], SECCOMP_RET_ALLOW);
	filter_answer_error(EPERM);
}

/* What acts on the caller alone. Left out, among others: PR_SET_MM, PR_SCHED_CORE, PR_SET_PTRACER. */
void check_prctl(void)
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

	filter_load_argument(0);
	for (size_t i = 0; i < sizeof(harmless) / sizeof(harmless[0]); i++)
		filter_if_equal(harmless[i], SECCOMP_RET_ALLOW);
	filter_answer_error(EINVAL);
}

/* Filters may be added, without a listener (which could answer for other processes) and without FLAG_LOG (which
 * writes into the machine's log). */
void check_seccomp(void)
{
	const uint32_t flags = SECCOMP_FILTER_FLAG_TSYNC | SECCOMP_FILTER_FLAG_SPEC_ALLOW |
			       SECCOMP_FILTER_FLAG_TSYNC_ESRCH;

	filter_load_argument(0);
	filter_if_equal(SECCOMP_SET_MODE_STRICT, SECCOMP_RET_ALLOW);
	filter_if_equal(SECCOMP_GET_ACTION_AVAIL, SECCOMP_RET_ALLOW);
	size_t filter = filter_begin_part(SECCOMP_SET_MODE_FILTER);
	filter_load_argument(1);
	filter_emit(BPF_JMP | BPF_JSET | BPF_K, ~flags, 0, 1);
	filter_answer_error(EPERM);
	filter_answer(SECCOMP_RET_ALLOW);
	filter_end_part(filter);
	filter_answer_error(EINVAL);
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
void check_setsockopt(void)
{
	static const uint32_t internet[] = {LEVEL_IP, LEVEL_IPV6};

	filter_load_argument(1);
	size_t part = filter_begin_part(SOL_SOCKET);
	filter_load_argument(2);
	filter_if_equal(SO_ATTACH_FILTER, FILTER_REFUSE(EPERM));
	filter_if_equal(SO_ATTACH_BPF, FILTER_REFUSE(EPERM));
	filter_if_equal(SO_ATTACH_REUSEPORT_CBPF, FILTER_REFUSE(EPERM));
	filter_if_equal(SO_ATTACH_REUSEPORT_EBPF, FILTER_REFUSE(EPERM));
	filter_answer(SECCOMP_RET_ALLOW);
	filter_end_part(part);

	part = filter_begin_part(LEVEL_TCP);
	filter_load_argument(2);
	filter_if_equal(OPTION_TCP_ULP, FILTER_REFUSE(EPERM));
	filter_answer(SECCOMP_RET_ALLOW);
	filter_end_part(part);

	for (size_t i = 0; i < sizeof(internet) / sizeof(internet[0]); i++) {
		part = filter_begin_part(internet[i]);
		filter_load_argument(2);
		filter_emit(BPF_JMP | BPF_JGE | BPF_K, OPTION_NETFILTER_FIRST, 0, 2);
		filter_emit(BPF_JMP | BPF_JGE | BPF_K, OPTION_NETFILTER_END, 1, 0);
		filter_answer_error(EPERM);
		filter_answer(SECCOMP_RET_ALLOW);
		filter_end_part(part);
	}
	filter_answer(SECCOMP_RET_ALLOW);
}

#define SOCKET_TYPE_MASK 0xfu /* the rest are SOCK_CLOEXEC and SOCK_NONBLOCK */
#define PROTOCOL_ANY 0u
#define PROTOCOL_TCP 6u
#define PROTOCOL_UDP 17u
#define PROTOCOL_NETLINK_ROUTE 0u

static void internet_socket(uint32_t family)
{
	size_t part = filter_begin_part(family);

	filter_load_argument(1);
	filter_emit(BPF_ALU | BPF_AND | BPF_K, SOCKET_TYPE_MASK, 0, 0);
	filter_emit(BPF_JMP | BPF_JEQ | BPF_K, SOCK_STREAM, 2, 0);
	filter_emit(BPF_JMP | BPF_JEQ | BPF_K, SOCK_DGRAM, 1, 0);
	filter_answer_error(EPERM);
	filter_load_argument(2);
	filter_if_equal(PROTOCOL_ANY, SECCOMP_RET_ALLOW);
	filter_if_equal(PROTOCOL_TCP, SECCOMP_RET_ALLOW);
	filter_if_equal(PROTOCOL_UDP, SECCOMP_RET_ALLOW);
	filter_answer_error(EPROTONOSUPPORT);
	filter_end_part(part);
}

void check_socket(void)
{
	filter_load_argument(0);
	filter_if_equal(AF_UNIX, SECCOMP_RET_ALLOW);
	internet_socket(AF_INET);
	internet_socket(AF_INET6);
	size_t part = filter_begin_part(AF_NETLINK);
	filter_load_argument(2);
	filter_if_equal(PROTOCOL_NETLINK_ROUTE, SECCOMP_RET_ALLOW);
	filter_answer_error(EPROTONOSUPPORT);
	filter_end_part(part);
	filter_answer_error(EAFNOSUPPORT);
}

void check_socketpair(void)
{
	filter_load_argument(0);
	filter_if_equal(AF_UNIX, SECCOMP_RET_ALLOW);
	filter_answer_error(EAFNOSUPPORT);
}
