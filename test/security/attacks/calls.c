/* Tries calls that a hostile program would make, each in a child of its own, and prints how each answered:
 * "name ok", "name EPERM", "name signal 31". Harmless where it succeeds: what it changes is the child's, or the
 * arguments are such that the kernel looks at them and then refuses. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/aio_abi.h>
#include <linux/audit.h>
#include <linux/bpf.h>
#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/fs.h>
#include <linux/io_uring.h>
#include <linux/mount.h>
#include <linux/perf_event.h>
#include <linux/seccomp.h>
#include <linux/userfaultfd.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <termios.h>
#include <unistd.h>
#include <net/if.h>
#include <netinet/in.h>

static long clone_with(unsigned long flags)
{
	long pid = syscall(SYS_clone, flags | SIGCHLD, 0, 0, 0, 0);
	if (pid == 0)
		_exit(0);
	if (pid > 0)
		waitpid((pid_t)pid, NULL, 0);
	return pid;
}

static long clone3_with(uint64_t flags)
{
	uint64_t args[11] = {flags, 0, 0, 0, SIGCHLD};
	long pid = syscall(SYS_clone3, args, sizeof(args));
	if (pid == 0)
		_exit(0);
	if (pid > 0)
		waitpid((pid_t)pid, NULL, 0);
	return pid;
}

static long enter_own(const char *path)
{
	int fd = open(path, O_RDONLY);
	return fd < 0 ? -1 : syscall(SYS_setns, fd, 0);
}

static long enter_parent(void)
{
	int fd = (int)syscall(SYS_pidfd_open, getppid(), 0);
	return fd < 0 ? -1 : syscall(SYS_setns, fd, CLONE_NEWNET | CLONE_NEWUTS);
}

/* A child to look into, alive until we end. */
static pid_t victim(void)
{
	pid_t pid = fork();
	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		for (;;)
			pause();
	}
	return pid;
}

static char secret[] = "secret";

static long read_other(void)
{
	char got[sizeof(secret)];
	struct iovec here = {got, sizeof(got)};
	struct iovec there = {secret, sizeof(secret)};
	return process_vm_readv(victim(), &here, 1, &there, 1, 0);
}

static long write_other(void)
{
	struct iovec here = {secret, sizeof(secret)};
	return process_vm_writev(victim(), &here, 1, &here, 1, 0);
}

static long open_memory(void)
{
	char got[sizeof(secret)];
	int fd = open("/proc/1/mem", O_RDONLY); /* outside it is us, inside the jail's init */
	return fd < 0 ? -1 : pread(fd, got, sizeof(got), (off_t)(uintptr_t)secret);
}

static long take_descriptor(void)
{
	int fd = (int)syscall(SYS_pidfd_open, victim(), 0);
	return fd < 0 ? -1 : syscall(SYS_pidfd_getfd, fd, 1, 0);
}

static long advise_other(void)
{
	struct iovec there = {(void *)((uintptr_t)secret & ~0xffful), 4096};
	int fd = (int)syscall(SYS_pidfd_open, victim(), 0);
	return fd < 0 ? -1 : syscall(SYS_process_madvise, fd, &there, 1, 20 /* MADV_COLD */, 0);
}

static long make_map(void)
{
	union bpf_attr attr = {.map_type = BPF_MAP_TYPE_ARRAY, .key_size = 4, .value_size = 4, .max_entries = 1};
	return syscall(SYS_bpf, BPF_MAP_CREATE, &attr, sizeof(attr));
}

static long count_events(void)
{
	struct perf_event_attr attr = {.type = PERF_TYPE_SOFTWARE, .size = sizeof(attr), .config = PERF_COUNT_SW_CPU_CLOCK};
	return syscall(SYS_perf_event_open, &attr, 0, -1, -1, 0);
}

static long make_ring(void)
{
	struct io_uring_params params = {0};
	return syscall(SYS_io_uring_setup, 1, &params);
}

static long listen_to_calls(void)
{
	struct sock_filter allow[] = {BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
	struct sock_fprog filter = {1, allow};
	prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
	return syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_NEW_LISTENER, &filter);
}

static long gain_capabilities(void)
{
	struct __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
	struct __user_cap_data_struct all[2] = {{1u << CAP_NET_RAW | 1u << CAP_SYS_ADMIN, 1u << CAP_NET_RAW | 1u << CAP_SYS_ADMIN, 0}, {0, 0, 0}};
	return syscall(SYS_capset, &header, all);
}

static long inherit_capability(void)
{
	struct __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
	struct __user_cap_data_struct data[2];
	if (syscall(SYS_capget, &header, data) < 0)
		return -1;
	data[0].inheritable = 1u << CAP_NET_RAW;
	return syscall(SYS_capset, &header, data);
}

static long give_file_capability(void)
{
	struct { uint32_t magic, permitted, inheritable, permitted_high, inheritable_high; } v = {
		0x02000001, 1u << CAP_NET_RAW, 0, 0, 0};
	int fd = open("/tmp/with-capability", O_CREAT | O_RDWR, 0700);
	return fd < 0 ? -1 : fsetxattr(fd, "security.capability", &v, sizeof(v), 0);
}

static int terminal(void)
{
	int master = posix_openpt(O_RDWR | O_NOCTTY);
	if (master < 0 || grantpt(master) < 0 || unlockpt(master) < 0)
		return -1;
	setsid();
	return open(ptsname(master), O_RDWR); /* becomes the controlling terminal */
}

static long on_terminal(unsigned long request, const void *argument)
{
	int fd = terminal();
	return fd < 0 ? -1 : syscall(SYS_ioctl, fd, request, argument);
}

static long attach_filter(int option)
{
	struct sock_filter allow[] = {BPF_STMT(BPF_RET | BPF_K, 1)};
	struct sock_fprog filter = {1, allow};
	int fd = socket(AF_INET, SOCK_DGRAM, 0);
	return setsockopt(fd, SOL_SOCKET, option, &filter, sizeof(filter));
}

static long load_protocol(void)
{
	int fd = socket(AF_INET, SOCK_STREAM, 0);
	return setsockopt(fd, IPPROTO_TCP, 31 /* TCP_ULP */, "tls", 3);
}

static long replace_table(void)
{
	char nothing[4096] = {0};
	int fd = socket(AF_INET, SOCK_DGRAM, 0);
	return setsockopt(fd, IPPROTO_IP, 64 /* IPT_SO_SET_REPLACE */, nothing, sizeof(nothing));
}

static long set_option(int family, int type, int level, int option, socklen_t length)
{
	static int value[1024] = {1};
	int fd = socket(family, type, 0);
	return fd < 0 ? -1 : setsockopt(fd, level, option, value, length);
}

static long get_option(int option)
{
	uint64_t value;
	socklen_t length = sizeof(value);
	return getsockopt(socket(AF_INET, SOCK_DGRAM, 0), SOL_SOCKET, option, &value, &length);
}

/* Outside, the new namespace's loopback is down, and no group can be joined on it. */
static void raise_loopback(int fd)
{
	struct ifreq request = {.ifr_name = "lo", .ifr_flags = IFF_UP | IFF_RUNNING};
	ioctl(fd, SIOCSIFFLAGS, &request);
}

static long join_group(int with_source)
{
	struct ip_mreq_source request = {.imr_multiaddr = {htonl(0xe0000105)}, .imr_interface = {htonl(0x7f000001)},
		.imr_sourceaddr = {htonl(0x7f000001)}};
	struct ip_mreq plain = {.imr_multiaddr = {htonl(0xe0000105)}, .imr_interface = {htonl(0x7f000001)}};
	int fd = socket(AF_INET, SOCK_DGRAM, 0);
	raise_loopback(fd);
	errno = 0;
	return with_source ? setsockopt(fd, IPPROTO_IP, IP_ADD_SOURCE_MEMBERSHIP, &request, sizeof(request))
			   : setsockopt(fd, IPPROTO_IP, IP_ADD_MEMBERSHIP, &plain, sizeof(plain));
}

static int file_of(off_t bytes)
{
	char path[] = "/tmp/file-XXXXXX";
	int fd = mkstemp(path);
	unlink(path);
	return ftruncate(fd, bytes) < 0 ? -1 : fd;
}

static long on_file(unsigned long request, void *argument)
{
	return syscall(SYS_ioctl, file_of(0), request, argument);
}

/* EXT4_IOC_MOVE_EXT exchanges what two files hold, without a trace in their times. The kernel's header is not installed. */
static int stored_file(void)
{
	static const char block[4096];
	int fd = file_of(0);

	return write(fd, block, sizeof(block)) < 0 || fsync(fd) < 0 ? -1 : fd;
}

static long move_extents(void)
{
	struct { uint32_t reserved, donor; uint64_t from, to, count, moved; } request = {0, (uint32_t)stored_file(), 0, 0, 1, 0};

	return syscall(SYS_ioctl, stored_file(), _IOWR('f', 15, request), &request);
}

static long madvise_with(int advice)
{
	void *page = mmap(NULL, 65536, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	return madvise(page, 65536, advice);
}

static long add_filter(void)
{
	struct sock_filter allow[] = {BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
	struct sock_fprog filter = {1, allow};
	prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
	return syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &filter);
}

static long add_filter_by_prctl(void)
{
	struct sock_filter allow[] = {BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
	struct sock_fprog filter = {1, allow};
	prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
	return prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter, 0, 0);
}

static long put(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY);
	return fd < 0 ? -1 : write(fd, text, strlen(text));
}

/* Opens for writing only: writing would change the machine. */
static long open_to_write(const char *path)
{
	return open(path, O_WRONLY);
}

static long move_to(const char *at)
{
	mkdir(at, 0755);
	long fs = syscall(SYS_fsopen, "tmpfs", 0);
	if (fs < 0)
		return -1;
	if (syscall(SYS_fsconfig, fs, 6 /* FSCONFIG_CMD_CREATE */, NULL, NULL, 0) < 0)
		return -1;
	long mounted = syscall(SYS_fsmount, fs, 0, 0);
	return mounted < 0 ? -1 : syscall(SYS_move_mount, mounted, "", AT_FDCWD, at, MOVE_MOUNT_F_EMPTY_PATH);
}

static long clear_read_only(void)
{
	struct mount_attr attr = {.attr_clr = MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID};
	return syscall(SYS_mount_setattr, AT_FDCWD, "/", 0, &attr, sizeof(attr));
}

static long handle_of_root(void)
{
	struct { struct file_handle handle; char room[128]; } h = {.handle = {.handle_bytes = 128}};
	int mount_id;
	return syscall(SYS_name_to_handle_at, AT_FDCWD, "/usr", &h, &mount_id, 0);
}

static long open_handle(void)
{
	struct { struct file_handle handle; char room[128]; } h = {.handle = {.handle_bytes = 8, .handle_type = 1}};
	int root = open("/", O_RDONLY | O_DIRECTORY);
	return syscall(SYS_open_by_handle_at, root, &h, O_RDONLY);
}

static long root_into_itself(void)
{
	mkdir("/tmp/root", 0755);
	return syscall(SYS_pivot_root, "/tmp/root", "/tmp/root");
}

static long gift_pages(void)
{
	int ends[2];
	struct iovec page = {secret, sizeof(secret)};
	return pipe(ends) < 0 ? -1 : syscall(SYS_vmsplice, ends[1], &page, 1, 0);
}

static long send_as(pid_t pid, uid_t uid)
{
	int ends[2];
	char byte = 0;
	struct iovec body = {&byte, 1};
	union { struct cmsghdr h; char room[CMSG_SPACE(sizeof(struct ucred))]; } c;
	struct msghdr m = {.msg_iov = &body, .msg_iovlen = 1, .msg_control = &c, .msg_controllen = sizeof(c)};
	struct ucred other = {pid, uid, getgid()};
	memset(&c, 0, sizeof(c));
	c.h.cmsg_level = SOL_SOCKET;
	c.h.cmsg_type = SCM_CREDENTIALS;
	c.h.cmsg_len = CMSG_LEN(sizeof(other));
	memcpy(CMSG_DATA(&c.h), &other, sizeof(other));
	return socketpair(AF_UNIX, SOCK_DGRAM, 0, ends) < 0 ? -1 : sendmsg(ends[0], &m, 0);
}

static long map_huge_page(void)
{
	void *page = mmap(NULL, 2u << 20, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB, -1, 0);
	return page == MAP_FAILED ? -1 : 0;
}

#if defined(__x86_64__)
static long x32_getpid(void)
{
	return syscall(0x40000000 | SYS_getpid);
}

static long i386_getpid(void)
{
	long answer;
	__asm__ volatile("int $0x80" : "=a"(answer) : "a"(20L) : "memory", "r8", "r9", "r10", "r11");
	if (answer < 0)
		errno = (int)-answer;
	return answer < 0 ? -1 : 0;
}
#endif

struct attempt {
	const char *name;
	long (*make)(void);
};

#define TRY(name, call) static long try_##name(void) { return (long)(call); }
#include "calls-table.h"
#undef TRY
#define TRY(name, call) {#name, try_##name},
static const struct attempt attempts[] = {
#include "calls-table.h"
};

static void report(const char *name, int status, int error)
{
	if (WIFSIGNALED(status))
		printf("%s signal %d\n", name, WTERMSIG(status));
	else
		printf("%s %s\n", name, error == 0 ? "ok" : strerrorname_np(error));
}

int main(int argc, char **argv)
{
	setvbuf(stdout, NULL, _IONBF, 0);
	for (size_t i = 0; i < sizeof(attempts) / sizeof(attempts[0]); i++) {
		int ends[2];
		int error = 0;
		int status;
		if ((argc > 1 && strcmp(argv[1], attempts[i].name) != 0) || pipe(ends) < 0)
			continue;
		pid_t child = fork();
		if (child == 0) {
			signal(SIGALRM, SIG_DFL);
			alarm(5);
			if (geteuid() == 0)
				unshare(CLONE_NEWNS); /* outside: one attempt's mounts must not be in the way of the next */
			errno = 0;
			error = attempts[i].make() < 0 ? errno : 0;
			if (write(ends[1], &error, sizeof(error)) != sizeof(error))
				_exit(1);
			_exit(0);
		}
		waitpid(child, &status, 0);
		if (!WIFSIGNALED(status) && read(ends[0], &error, sizeof(error)) != sizeof(error))
			error = EIO;
		close(ends[0]);
		close(ends[1]);
		report(attempts[i].name, status, error);
	}
	return 0;
}
