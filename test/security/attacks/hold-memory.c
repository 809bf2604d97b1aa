/* Makes the kernel hold as much memory as it can be brought to, in one way: hold-memory WAY [TARGET_MIB]. Prints the
 * total of bytes held so far whenever another 4 MiB are reached, and "end N" when it can have no more.
 * WAY can end with "-v6": with IPv6; and then with "-among-N": beside N idle sockets of the same kind. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/shm.h>
#include <sys/msg.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#define MIB (1024ul * 1024)
#define PROCESSES 32

static unsigned long target = 512 * MIB;
static char block[1 << 20];

/* Shared by the processes of the ways that need several. */
static unsigned long *held;

static void more(unsigned long bytes)
{
	unsigned long before = __atomic_fetch_add(held, bytes, __ATOMIC_SEQ_CST);

	if (before / (4 * MIB) != (before + bytes) / (4 * MIB)) {
		char text[32];
		int length = snprintf(text, sizeof(text), "%lu\n", before + bytes);
		if (write(1, text, (size_t)length) < 0)
			_exit(1);
	}
}

static int enough(void)
{
	return *held >= target;
}

static void heap(void)
{
	while (!enough()) {
		char *p = mmap(NULL, MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		if (p == MAP_FAILED)
			return;
		memset(p, 1, MIB);
		more(MIB);
	}
}

static void file(const char *directory)
{
	char path[256];

	for (int i = 0; !enough(); i++) {
		snprintf(path, sizeof(path), "%s/held-%d", directory, i);
		int fd = open(path, O_CREAT | O_WRONLY, 0600);
		if (fd < 0)
			return;
		for (int j = 0; j < 16 && !enough(); j++) {
			ssize_t put = write(fd, block, sizeof(block));
			if (put <= 0)
				return;
			more((unsigned long)put);
		}
		close(fd);
	}
}

static void memory_file(void)
{
	while (!enough()) {
		int fd = (int)syscall(SYS_memfd_create, "held", 0);
		for (int j = 0; j < 16 && !enough(); j++) {
			ssize_t put = write(fd, block, sizeof(block));
			if (put <= 0)
				return;
			more((unsigned long)put);
		}
	}
}

static void shared_segments(void)
{
	while (!enough()) {
		int id = shmget(IPC_PRIVATE, 16 * MIB, 0600);
		char *p = id < 0 ? (char *)-1 : shmat(id, NULL, 0);
		if (p == (char *)-1)
			return;
		for (unsigned long at = 0; at < 16 * MIB; at += MIB) {
			memset(p + at, 1, MIB);
			more(MIB);
		}
		shmdt(p);
	}
}

static void message_queues(void)
{
	static struct { long type; char text[8192]; } message = {1, {0}};

	while (!enough()) {
		int id = msgget(IPC_PRIVATE, 0600);
		unsigned long before = *held;
		if (id < 0)
			return;
		while (msgsnd(id, &message, sizeof(message.text), IPC_NOWAIT) == 0)
			more(sizeof(message.text));
		if (*held == before)
			return;
	}
}

/* Fills what lies between two descriptors. */
static int fill(int fd)
{
	unsigned long before = *held;

	fcntl(fd, F_SETFL, O_NONBLOCK);
	for (;;) {
		ssize_t put = write(fd, block, sizeof(block));
		if (put < 0 && errno == EMSGSIZE)
			put = write(fd, block, 60000);
		if (put <= 0)
			break;
		more((unsigned long)put);
	}
	return *held > before;
}

static void pipes(void)
{
	int ends[2];

	while (!enough() && pipe(ends) == 0) {
		fcntl(ends[1], F_SETPIPE_SZ, 1 << 20);
		if (!fill(ends[1]))
			return;
	}
}

static void unix_sockets(int type)
{
	int ends[2];

	while (!enough() && socketpair(AF_UNIX, type, 0, ends) == 0) {
		setsockopt(ends[0], SOL_SOCKET, SO_SNDBUF, (int[1]){1 << 24}, sizeof(int));
		if (!fill(ends[0]))
			return;
	}
}

static void tcp_sockets(void)
{
	struct sockaddr_in here = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t length = sizeof(here);
	int door = socket(AF_INET, SOCK_STREAM, 0);

	setsockopt(door, SOL_SOCKET, SO_RCVBUF, (int[1]){1 << 24}, sizeof(int));
	if (bind(door, (void *)&here, sizeof(here)) < 0 || listen(door, 16) < 0 || getsockname(door, (void *)&here, &length) < 0)
		return;
	while (!enough()) {
		int out = socket(AF_INET, SOCK_STREAM, 0);
		fcntl(door, F_SETFL, O_NONBLOCK);
		fcntl(out, F_SETFL, O_NONBLOCK);
		if (out < 0 || (connect(out, (void *)&here, sizeof(here)) < 0 && errno != EINPROGRESS) ||
		    accept(door, NULL, NULL) < 0)
			return;
		setsockopt(out, SOL_SOCKET, SO_SNDBUF, (int[1]){1 << 24}, sizeof(int));
		unsigned long before = *held;
		for (int i = 0; i < 20; i++) {
			fill(out);
			usleep(1000); /* the receiver's window grows meanwhile */
		}
		if (*held - before < 65536)
			return; /* under pressure a connection still gets a little */
	}
}

static void udp_sockets(void)
{
	while (!enough()) {
		struct sockaddr_in here = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
		socklen_t length = sizeof(here);
		int in = socket(AF_INET, SOCK_DGRAM, 0);
		int out = socket(AF_INET, SOCK_DGRAM, 0);
		uint32_t usage[9] = {0}; /* SK_MEMINFO_RMEM_ALLOC is the first */
		if (in < 0 || out < 0)
			return;
		setsockopt(in, SOL_SOCKET, SO_RCVBUF, (int[1]){1 << 24}, sizeof(int));
		if (bind(in, (void *)&here, sizeof(here)) < 0 || getsockname(in, (void *)&here, &length) < 0 ||
		    connect(out, (void *)&here, sizeof(here)) < 0)
			return;
		/* Datagrams that find no room are dropped, so the kernel is asked what the buffer holds. */
		for (int i = 0; i < 64; i++)
			if (send(out, block, 60000, MSG_DONTWAIT) < 0)
				break;
		getsockopt(in, SOL_SOCKET, SO_MEMINFO, usage, (socklen_t[1]){sizeof(usage)});
		if (usage[0] == 0)
			return;
		more(usage[0]);
	}
}

/* What the kernel holds for a socket, received and to be sent. */
static unsigned long socket_bytes(int fd)
{
	uint32_t usage[9] = {0}; /* SK_MEMINFO_RMEM_ALLOC is the first, SK_MEMINFO_WMEM_ALLOC the third */

	getsockopt(fd, SOL_SOCKET, SO_MEMINFO, usage, (socklen_t[1]){sizeof(usage)});
	return usage[0] + usage[2];
}

/* Where an address is given as a pointer, this is one. */
struct address {
	union {
		struct sockaddr_in four;
		struct sockaddr_in6 six;
	};
	socklen_t length;
};

static int family = AF_INET;

static struct address loopback(int port)
{
	struct address address = {.length = sizeof(address.six)};

	if (family == AF_INET6) {
		address.six = (struct sockaddr_in6){
			.sin6_family = AF_INET6, .sin6_port = htons((uint16_t)port), .sin6_addr = IN6ADDR_LOOPBACK_INIT};
		return address;
	}
	address.four = (struct sockaddr_in){
		.sin_family = AF_INET, .sin_port = htons((uint16_t)port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	address.length = sizeof(address.four);
	return address;
}

static void open_idle(const char *way)
{
	struct sockaddr_storage netlink_here = {.ss_family = AF_NETLINK};
	struct address here = loopback(0);

	if (strcmp(way, "netlink") == 0)
		bind(socket(AF_NETLINK, SOCK_RAW, 0), (void *)&netlink_here, 12);
	else if (strcmp(way, "corked") == 0)
		bind(socket(family, SOCK_DGRAM, 0), (void *)&here, here.length);
	else
		listen(socket(family, SOCK_STREAM, 0), 1);
}

/* In processes of their own, since each has a limit on descriptors. They end with this one. */
static void hold_idle(const char *way, int count)
{
	for (const int each = 900; count > 0; count -= each) {
		int done[2];
		char byte;
		if (pipe(done) < 0)
			return;
		if (fork() == 0) {
			prctl(PR_SET_PDEATHSIG, SIGKILL);
			for (int i = 0; i < each && i < count; i++)
				open_idle(way);
			close(done[0]);
			close(done[1]);
			for (;;)
				pause();
		}
		close(done[1]);
		if (read(done[0], &byte, 1) < 0)
			return;
		close(done[0]);
	}
}

/* Each request of a kind that does not exist is answered with an error that holds the request. */
static void netlink(void)
{
	struct { struct { uint32_t length; uint16_t type, flags; uint32_t sequence, pid; } header; char text[150000]; } request = {
		.header = {sizeof(request), 32767, 5, 1, 0}};
	struct sockaddr_storage here = {.ss_family = AF_NETLINK};

	while (!enough()) {
		int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_NONBLOCK, 0);
		setsockopt(fd, SOL_SOCKET, SO_RCVBUF, (int[1]){1 << 24}, sizeof(int));
		if (fd < 0 || bind(fd, (void *)&here, 12) < 0)
			return;
		for (int i = 0; i < 99 && send(fd, &request, sizeof(request), 0) > 0; i++)
			continue;
		more(socket_bytes(fd));
	}
}

/* Datagrams that are put together and never sent. */
static void corked(void)
{
	struct address here = loopback(9);

	while (!enough()) {
		int fd = socket(family, SOCK_DGRAM, 0);
		if (fd < 0 || connect(fd, (void *)&here, here.length) < 0 || send(fd, block, 60000, MSG_MORE) < 0)
			return;
		more(socket_bytes(fd));
	}
}

/* Connections that wait to be accepted for ever, with what was sent to them; who sent it is closed. */
static void unaccepted(void)
{
	while (!enough()) {
		struct address here = loopback(0);
		int listener = socket(family, SOCK_STREAM, 0);
		if (bind(listener, (void *)&here, here.length) < 0 || listen(listener, 4096) < 0 ||
		    getsockname(listener, (void *)&here, &here.length) < 0)
			return;
		for (int i = 0; i < 4000 && !enough(); i++) {
			int out = socket(family, SOCK_STREAM, 0);
			unsigned long before = *held;
			if (out < 0 || connect(out, (void *)&here, here.length) < 0)
				break;
			fill(out);
			close(out);
			if (*held == before)
				break;
		}
	}
}

/* One page of each 2 MiB: a page and a page table for it. */
static void page_tables(void)
{
	unsigned long span = 1ul << 30;

	while (!enough()) {
		char *p = mmap(NULL, span, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
		if (p == MAP_FAILED)
			return;
		for (unsigned long at = 0; at < span && !enough(); at += 2 * MIB) {
			/* Reading maps the page of zeroes: only the table costs. */
			*(volatile char *)(p + at);
			more(4096);
		}
	}
}

static void terminals(void)
{
	while (!enough()) {
		int master = posix_openpt(O_RDWR | O_NOCTTY);
		if (master < 0 || grantpt(master) < 0 || unlockpt(master) < 0)
			return;
		int slave = open(ptsname(master), O_RDWR | O_NOCTTY);
		if (slave < 0)
			return;
		fill(master);
		fill(slave);
	}
}

/* The kernel translates each filter to machine code, about five bytes for an instruction. */
static void filters(void)
{
	static struct sock_filter program[4096];
	struct sock_fprog filter = {.len = 4096, .filter = program};

	for (int i = 0; i < 4095; i++)
		program[i] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_IMM, (uint32_t)i * 0x01010101u);
	program[4095] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
	prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
	while (!enough() && syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &filter) == 0)
		more(4096 * 5);
}

static void hold(const char *way)
{
	if (strcmp(way, "heap") == 0) heap();
	else if (strcmp(way, "tmp") == 0) file("/tmp");
	else if (strcmp(way, "shm") == 0) file("/dev/shm");
	else if (strcmp(way, "home") == 0) file(".");
	else if (strcmp(way, "memfd") == 0) memory_file();
	else if (strcmp(way, "segments") == 0) shared_segments();
	else if (strcmp(way, "messages") == 0) message_queues();
	else if (strcmp(way, "pipes") == 0) pipes();
	else if (strcmp(way, "unix") == 0) unix_sockets(SOCK_STREAM);
	else if (strcmp(way, "unix-datagrams") == 0) unix_sockets(SOCK_SEQPACKET);
	else if (strcmp(way, "tcp") == 0) tcp_sockets();
	else if (strcmp(way, "udp") == 0) udp_sockets();
	else if (strcmp(way, "netlink") == 0) netlink();
	else if (strcmp(way, "corked") == 0) corked();
	else if (strcmp(way, "unaccepted") == 0) unaccepted();
	else if (strcmp(way, "page-tables") == 0) page_tables();
	else if (strcmp(way, "terminals") == 0) terminals();
	else if (strcmp(way, "filters") == 0) filters();
	else _exit(64);
}

/* Each process has its own limit on descriptors, so several get further. */
static int is_per_process(const char *way)
{
	static const char *const ways[] = {"pipes", "unix", "unix-datagrams", "tcp", "udp", "netlink", "corked", "unaccepted", "filters", "memfd", "page-tables"};

	for (size_t i = 0; i < sizeof(ways) / sizeof(ways[0]); i++)
		if (strcmp(way, ways[i]) == 0)
			return 1;
	return 0;
}

int main(int argc, char **argv)
{
	if (argc < 2)
		return 64;
	if (argc > 2)
		target = strtoul(argv[2], NULL, 10) * MIB;
	held = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	signal(SIGPIPE, SIG_IGN);
	char *among = strstr(argv[1], "-among-");
	if (among != NULL)
		*among = '\0';
	char *six = strstr(argv[1], "-v6");
	if (six != NULL) {
		*six = '\0';
		family = AF_INET6;
	}
	if (among != NULL)
		hold_idle(argv[1], atoi(among + strlen("-among-")));
	if (!is_per_process(argv[1]))
		hold(argv[1]);
	else
		for (int i = 0; i < PROCESSES && !enough(); i++) {
			int done[2];
			char byte;
			if (pipe(done) < 0)
				break;
			pid_t pid = fork();
			if (pid == 0) {
				prctl(PR_SET_PDEATHSIG, SIGKILL);
				close(done[0]);
				hold(argv[1]);
				close(done[1]);
				for (;;)
					pause(); /* what it holds is held until the end */
			}
			close(done[1]);
			if (pid > 0 && read(done[0], &byte, 1) < 0)
				break;
			close(done[0]);
		}
	printf("end %lu\n", *held);
	fflush(stdout);
	return 0;
}
