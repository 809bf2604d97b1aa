#include "seccomp-actions.h"

#include <sys/socket.h>

#include "filter.h"

/* linux/in.h and linux/tcp.h do not go together with the C library's own; these are the kernel's ABI. */
#define LEVEL_IP 0u
#define LEVEL_TCP 6u
#define LEVEL_UDP 17u
#define LEVEL_IPV6 41u
#define LEVEL_NETLINK 270u
#define OPTION_TCP_ULP 31u
#define OPTION_NETFILTER_FIRST 64u
#define OPTION_NETFILTER_END 96u
#define IPV6_NETFILTER_END 66u /* IPV6_RECVTCLASS and other options of IPv6 lie among the numbers */
#define OPTION_NETNS_COOKIE 71u
#define OPTION_COOKIE 57u

/* Joining multicast groups, and lists of their senders: kept by the kernel for each socket and counted by no limit. There
 * is no network to join, and the error is that of a machine without one. */
#define IP_MEMBERSHIP_FIRST 35u
#define MCAST_FIRST 42u
#define MEMBERSHIP_END 49u
#define OPTION_IPV6_JOIN_GROUP 20u
#define OPTION_IPV6_LEAVE_GROUP 21u

#define OPTION(number) (1u << ((number) % 32u))

/* What changes how the socket itself behaves. Not in it: the sizes of buffers (below), filters, zero copy, time stamps
 * in hardware. */
static const uint32_t of_sockets[] = {
	OPTION(2) | OPTION(5) | OPTION(6) | OPTION(9) | OPTION(10) | OPTION(12) | OPTION(13) | OPTION(15) | OPTION(16) |
		OPTION(18) | OPTION(20) | OPTION(21) | OPTION(25) | OPTION(29), /* SO_REUSEADDR to SO_TIMESTAMP */
	OPTION(34) | OPTION(35) | OPTION(40) | OPTION(42) | OPTION(46) | OPTION(49) | OPTION(62) | OPTION(63),
	OPTION(64) | OPTION(66) | OPTION(67) | OPTION(76) | OPTION(83), /* with 64-bit times; SO_PASSPIDFD, SO_PASSRIGHTS */
};

static const uint32_t of_ip[] = {
	OPTION(1) | OPTION(2) | OPTION(6) | OPTION(7) | OPTION(8) | OPTION(10) | OPTION(11) | OPTION(12) | OPTION(13) |
		OPTION(14) | OPTION(15) | OPTION(20) | OPTION(21) | OPTION(23) | OPTION(24) | OPTION(25) | OPTION(26),
	OPTION(32) | OPTION(33) | OPTION(34) | OPTION(49) | OPTION(50) | OPTION(51),
};

/* TCP_NODELAY to TCP_TX_DELAY. Not in it: keys (TCP_MD5SIG, TCP_AO), protocol modules (TCP_ULP), repair mode. */
static const uint32_t of_tcp[] = {
	OPTION(1) | OPTION(2) | OPTION(3) | OPTION(4) | OPTION(5) | OPTION(6) | OPTION(7) | OPTION(8) | OPTION(9) |
		OPTION(10) | OPTION(12) | OPTION(13) | OPTION(16) | OPTION(17) | OPTION(18) | OPTION(23) | OPTION(24) |
		OPTION(25) | OPTION(30),
	OPTION(36) | OPTION(37),
};

static const uint32_t of_udp[] = {
	OPTION(1), 0, 0, OPTION(101) | OPTION(102) | OPTION(103) | OPTION(104),
};

/* Not in it: extension headers, flow labels, anycast. */
static const uint32_t of_ipv6[] = {
	OPTION(2) | OPTION(8) | OPTION(11) | OPTION(16) | OPTION(17) | OPTION(18) | OPTION(19) | OPTION(23) | OPTION(24) |
		OPTION(25) | OPTION(26) | OPTION(29) | OPTION(31),
	OPTION(33) | OPTION(49) | OPTION(51) | OPTION(53) | OPTION(56) | OPTION(58) | OPTION(60) | OPTION(62),
	OPTION(66) | OPTION(67) | OPTION(70) | OPTION(72) | OPTION(73) | OPTION(74) | OPTION(76) | OPTION(77) | OPTION(78),
};

static const uint32_t of_netlink[] = {
	OPTION(1) | OPTION(2) | OPTION(3) | OPTION(4) | OPTION(5) | OPTION(10) | OPTION(11) | OPTION(12),
};

static void allow_options(uint32_t level, const uint32_t *masks, size_t words)
{
	size_t part = filter_begin_part(level);

	filter_load_argument(2);
	filter_allow_small(masks, words);
	filter_answer_error(ENOPROTOOPT);
	filter_end_part(part);
}

static void socket_options(void)
{
	size_t part = filter_begin_part(SOL_SOCKET);

	filter_load_argument(2);
	/* Buffers stay as large as they are from the start, so that a socket holds what one socket may: the sizes are the
	 * machine's, and the kernel counts them for no run. Programs ask for more as a favour and check nothing. */
	filter_if_equal(SO_SNDBUF, FILTER_REFUSE(0));
	filter_if_equal(SO_RCVBUF, FILTER_REFUSE(0));
	filter_if_equal(SO_ATTACH_FILTER, FILTER_REFUSE(EPERM));
	filter_if_equal(SO_ATTACH_BPF, FILTER_REFUSE(EPERM));
	filter_if_equal(SO_ATTACH_REUSEPORT_CBPF, FILTER_REFUSE(EPERM));
	filter_if_equal(SO_ATTACH_REUSEPORT_EBPF, FILTER_REFUSE(EPERM));
	filter_allow_small(of_sockets, sizeof(of_sockets) / sizeof(of_sockets[0]));
	filter_answer_error(ENOPROTOOPT);
	filter_end_part(part);
}

static void ip_options(void)
{
	size_t part = filter_begin_part(LEVEL_IP);

	filter_load_argument(2);
	filter_answer_range(IP_MEMBERSHIP_FIRST, MEMBERSHIP_END, FILTER_REFUSE(ENODEV));
	filter_answer_range(OPTION_NETFILTER_FIRST, OPTION_NETFILTER_END, FILTER_REFUSE(EPERM));
	filter_allow_small(of_ip, sizeof(of_ip) / sizeof(of_ip[0]));
	filter_answer_error(ENOPROTOOPT);
	filter_end_part(part);
}

static void ipv6_options(void)
{
	size_t part = filter_begin_part(LEVEL_IPV6);

	filter_load_argument(2);
	filter_if_equal(OPTION_IPV6_JOIN_GROUP, FILTER_REFUSE(ENODEV));
	filter_if_equal(OPTION_IPV6_LEAVE_GROUP, FILTER_REFUSE(ENODEV));
	filter_answer_range(MCAST_FIRST, MEMBERSHIP_END, FILTER_REFUSE(ENODEV));
	filter_answer_range(OPTION_NETFILTER_FIRST, IPV6_NETFILTER_END, FILTER_REFUSE(EPERM));
	filter_allow_small(of_ipv6, sizeof(of_ipv6) / sizeof(of_ipv6[0]));
	filter_answer_error(ENOPROTOOPT);
	filter_end_part(part);
}

/* By list, since an option may make the kernel hold memory that no limit counts: filters, keys, memberships, lists of
 * addresses. An option that is not listed does not exist, as on an older kernel. Filters on sockets are BPF programs;
 * TCP_ULP loads protocol modules; options from 64 on of IP and IPv6 are netfilter's tables: a privilege that is refused. */
void check_setsockopt(void)
{
	filter_load_argument(1);
	socket_options();
	size_t part = filter_begin_part(LEVEL_TCP);
	filter_load_argument(2);
	filter_if_equal(OPTION_TCP_ULP, FILTER_REFUSE(EPERM));
	filter_allow_small(of_tcp, sizeof(of_tcp) / sizeof(of_tcp[0]));
	filter_answer_error(ENOPROTOOPT);
	filter_end_part(part);
	ip_options();
	ipv6_options();
	allow_options(LEVEL_UDP, of_udp, sizeof(of_udp) / sizeof(of_udp[0]));
	allow_options(LEVEL_NETLINK, of_netlink, sizeof(of_netlink) / sizeof(of_netlink[0]));
	filter_answer_error(ENOPROTOOPT);
}

/* Cookies count what the whole machine makes, and tell one run how many sockets and namespaces others have. */
void check_getsockopt(void)
{
	filter_load_argument(1);
	size_t part = filter_begin_part(SOL_SOCKET);
	filter_load_argument(2);
	filter_if_equal(OPTION_COOKIE, FILTER_REFUSE(ENOPROTOOPT));
	filter_if_equal(OPTION_NETNS_COOKIE, FILTER_REFUSE(ENOPROTOOPT));
	filter_answer(SECCOMP_RET_ALLOW);
	filter_end_part(part);
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
