/* The network of a jail as this process gives it one: sockets that listen in the network namespace of the jail. A socket
 * belongs to the namespace in which it was created, whichever process holds it. */
#define _GNU_SOURCE
#include "job.h"
#include "lookup.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <linux/rtnetlink.h>

#define LOOPBACK_INDEX 1 /* of lo, the first interface of every namespace */
#define DNS_PORT 53
/* As many connections as may wait to be accepted; the kernel limits it to net.core.somaxconn of the jail. */
#define BACKLOG 4096

/* Runs one job in a thread that enters the namespace and ends there: no thread of the pool ever leaves its own. */
struct visit {
	struct job *job;
	void (*run)(struct job *job);
};

/* Whether a namespace is the one of this process, in which nothing may be opened for a jail. */
static bool is_own_namespace(int namespace)
{
	struct stat own, given;

	return stat("/proc/self/ns/net", &own) < 0 || fstat(namespace, &given) < 0 ||
	       (own.st_ino == given.st_ino && own.st_dev == given.st_dev);
}

static void *visit_namespace(void *data)
{
	const struct visit *visit = data;
	int namespace = (int)visit->job->number[0];

	if (is_own_namespace(namespace)) {
		errno = EINVAL;
		job_fail(visit->job, "network namespace");
	} else if (setns(namespace, CLONE_NEWNET) < 0) {
		job_fail(visit->job, "setns");
	} else {
		visit->run(visit->job);
	}
	return NULL;
}

static void in_namespace(struct job *job, void (*run)(struct job *job))
{
	struct visit visit = {.job = job, .run = run};
	pthread_t thread;
	int error = pthread_create(&thread, NULL, visit_namespace, &visit);

	if (error != 0) {
		errno = error;
		job_fail(job, "pthread_create");
		return;
	}
	pthread_join(thread, NULL);
}

/* Routes every address to this namespace itself, so that a connection to any of them finds a listener or fails at once. */
static int route_to_loopback(int family)
{
	struct {
		struct nlmsghdr header;
		struct rtmsg route;
		struct rtattr attribute;
		uint32_t interface;
	} request = {
		.header = {
			.nlmsg_len = sizeof(request),
			.nlmsg_type = RTM_NEWROUTE,
			.nlmsg_flags = NLM_F_REQUEST | NLM_F_CREATE | NLM_F_REPLACE | NLM_F_ACK,
		},
		.route = {
			.rtm_family = (unsigned char)family,
			.rtm_table = RT_TABLE_LOCAL,
			.rtm_protocol = RTPROT_STATIC,
			.rtm_scope = RT_SCOPE_HOST,
			.rtm_type = RTN_LOCAL,
		},
		.attribute = {.rta_len = RTA_LENGTH(sizeof(uint32_t)), .rta_type = RTA_OIF},
		.interface = LOOPBACK_INDEX,
	};
	struct {
		struct nlmsghdr header;
		struct nlmsgerr error;
		char rest[256];
	} answer;
	int netlink = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE);

	if (netlink < 0)
		return -1;
	ssize_t got = send(netlink, &request, sizeof(request), 0);
	if (got >= 0)
		got = recv(netlink, &answer, sizeof(answer), 0);
	close(netlink);
	if (got < 0)
		return -1;
	errno = (size_t)got < sizeof(answer.header) + sizeof(answer.error) ? EBADMSG : -answer.error.error;
	return errno == 0 ? 0 : -1;
}

static int open_socket(int family, int type, int port)
{
	struct sockaddr_in6 six = {.sin6_family = AF_INET6, .sin6_port = htons((uint16_t)port), .sin6_addr = IN6ADDR_LOOPBACK_INIT};
	struct sockaddr_in four = {
		.sin_family = AF_INET, .sin_port = htons((uint16_t)port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	bool is_six = family == AF_INET6;
	const struct sockaddr *address = is_six ? (struct sockaddr *)&six : (struct sockaddr *)&four;
	const int on = 1;
	int made = socket(family, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	if (made < 0)
		return -1;
	if (setsockopt(made, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) < 0 ||
	    (is_six && setsockopt(made, IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof(on)) < 0) ||
	    bind(made, address, is_six ? sizeof(six) : sizeof(four)) < 0 ||
	    (type == SOCK_STREAM && listen(made, BACKLOG) < 0)) {
		int error = errno;
		close(made);
		errno = error;
		return -1;
	}
	return made;
}

static void close_all(const int64_t *descriptors, size_t count)
{
	for (size_t i = 0; i < count; i++)
		if (descriptors[i] >= 0)
			close((int)descriptors[i]);
}

/* The order of the result of openJailNetwork. */
enum { TCP4, TCP6, DNS, LOOKUP, OPENED };

static bool open_stream(struct job *job, int family, size_t place)
{
	if (route_to_loopback(family) < 0)
		job_fail(job, "route");
	else if ((job->result[place] = open_socket(family, SOCK_STREAM, (int)job->number[1])) < 0)
		job_fail(job, "listen");
	return job->error == 0;
}

static void open_in_jail(struct job *job)
{
	bool has_six = access("/proc/sys/net/ipv6", F_OK) == 0;

	for (size_t i = 0; i < OPENED; i++)
		job->result[i] = -1;
	if (open_stream(job, AF_INET, TCP4) && (!has_six || open_stream(job, AF_INET6, TCP6))) {
		if ((job->result[DNS] = open_socket(AF_INET, SOCK_DGRAM, DNS_PORT)) < 0)
			job_fail(job, "bind");
		else if ((job->result[LOOKUP] =
				  lookup_attach((int)job->number[0], (int)job->result[TCP4], (int)job->result[TCP6])) < 0)
			job_fail(job, "bpf");
	}
	if (job->error != 0)
		close_all(job->result, OPENED);
}

/* openJailNetwork(namespace, port): descriptors of a listener of IPv4, one of IPv6 or -1, a socket for DNS, and the link
 * that leads every connection to another address than loopback to the listeners for as long as it is open */
static void open_jail_network(struct job *job)
{
	in_namespace(job, open_in_jail);
}

/* The kernel answers on loopback at once, unless the backlog of the program is full. */
#define CONNECT_WITHIN_MS 250

static int finish_connecting(int made)
{
	struct pollfd writable = {.fd = made, .events = POLLOUT};
	int error = 0;
	socklen_t size = sizeof(error);

	if (errno != EINPROGRESS)
		return -1;
	int ready = poll(&writable, 1, CONNECT_WITHIN_MS);
	if (ready < 0 || getsockopt(made, SOL_SOCKET, SO_ERROR, &error, &size) < 0)
		return -1;
	errno = ready == 0 ? ETIMEDOUT : error;
	return errno == 0 ? 0 : -1;
}

static int connect_to(const struct sockaddr *address, socklen_t size)
{
	int made = socket(address->sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	if (made < 0)
		return -1;
	if (connect(made, address, size) < 0 && finish_connecting(made) < 0) {
		int error = errno;
		close(made);
		errno = error;
		return -1;
	}
	return made;
}

/* Some programs listen only on the first address of localhost, which can be that of IPv6. */
static void connect_in_jail(struct job *job)
{
	in_port_t port = htons((uint16_t)job->number[1]);
	struct sockaddr_in four = {.sin_family = AF_INET, .sin_port = port, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	struct sockaddr_in6 six = {.sin6_family = AF_INET6, .sin6_port = port, .sin6_addr = IN6ADDR_LOOPBACK_INIT};
	int made = connect_to((struct sockaddr *)&four, sizeof(four));

	if (made < 0 && errno == ECONNREFUSED) {
		made = connect_to((struct sockaddr *)&six, sizeof(six));
		if (made < 0 && errno == EAFNOSUPPORT)
			errno = ECONNREFUSED;
	}
	if (made < 0)
		job_fail(job, "connect");
	else
		job->result[0] = made;
}

/* connectInJail(namespace, port): a connection to a server of the jail on its loopback */
static void connect_in(struct job *job)
{
	in_namespace(job, connect_in_jail);
}

const struct operation network_operations[] = {
	{"openJailNetwork", "nn", RESULT_NUMBERS, open_jail_network},
	{"connectInJail", "nn", RESULT_NUMBER, connect_in},
	{NULL, NULL, RESULT_NONE, NULL},
};
