/* Two ways to hand a mounted filesystem to a user namespace, side by side in one process pair.
 *
 *   storage-handover FILESYSTEM DOCK ROUNDS
 *
 * FILESYSTEM is a mount point that holds a file "seen" of uid 1000; DOCK a shared mount with a directory "home". Prints one
 * line for each way and fact: name, tab, value. Both sides check that the file is there with its uid translated. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/mount.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define REMOUNT_BIND_RW (32 | 4096) /* MS_REMOUNT | MS_BIND, and not MS_RDONLY */
#define PRIVATE_PLACE "/mnt"

static const char *filesystem, *dock_home;

static void die(const char *what)
{
	perror(what);
	_exit(1);
}

static double now_us(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

static void send_word(int socket, char word, int fd)
{
	struct iovec part = {.iov_base = &word, .iov_len = 1};
	union {
		struct cmsghdr header;
		char room[CMSG_SPACE(sizeof(int))];
	} control = {0};
	struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};

	if (fd >= 0) {
		message.msg_control = &control;
		message.msg_controllen = sizeof(control);
		control.header.cmsg_level = SOL_SOCKET;
		control.header.cmsg_type = SCM_RIGHTS;
		control.header.cmsg_len = CMSG_LEN(sizeof(int));
		memcpy(CMSG_DATA(&control.header), &fd, sizeof(int));
	}
	if (sendmsg(socket, &message, 0) != 1)
		die("sendmsg");
}

static char take_word(int socket, int *fd)
{
	char word = 0;
	struct iovec part = {.iov_base = &word, .iov_len = 1};
	union {
		struct cmsghdr header;
		char room[CMSG_SPACE(sizeof(int))];
	} control = {0};
	struct msghdr message = {
		.msg_iov = &part, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof(control)};

	if (recvmsg(socket, &message, MSG_CMSG_CLOEXEC) != 1)
		_exit(1);
	*fd = -1;
	if (CMSG_FIRSTHDR(&message) != NULL)
		memcpy(fd, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof(int));
	return word;
}

static char looks_right(const char *directory)
{
	char path[4096];
	struct stat stat;

	snprintf(path, sizeof(path), "%s/seen", directory);
	return lstat(path, &stat) == 0 && stat.st_uid == 1000 ? 'y' : 'n';
}

static char regains_write(const char *place)
{
	return syscall(SYS_mount, NULL, place, NULL, REMOUNT_BIND_RW, NULL) == 0 ? 'y' : 'n';
}

/* The slot: root of a user namespace of its own. Words: d look in the dock; f take a mount and look; w is it read-only for
 * good in the dock; x the same for a mount that came as a descriptor. */
static void slot(int socket)
{
	int fd;

	if (unshare(CLONE_NEWUSER) < 0)
		die("unshare");
	send_word(socket, 'r', -1);
	take_word(socket, &fd);
	if (setresuid(0, 0, 0) < 0 || unshare(CLONE_NEWNS) < 0)
		die("unshare");
	if (syscall(SYS_mount, "tmpfs", PRIVATE_PLACE, "tmpfs", 0, NULL) < 0)
		die("tmpfs");
	send_word(socket, 'r', -1);
	for (;;) {
		char word = take_word(socket, &fd), answer = 'n';
		if (word == 'd')
			answer = looks_right(dock_home);
		if (word == 'w')
			answer = regains_write(dock_home);
		if (fd >= 0) {
			if (syscall(SYS_move_mount, fd, "", AT_FDCWD, PRIVATE_PLACE, MOVE_MOUNT_F_EMPTY_PATH) < 0)
				die("move_mount");
			close(fd);
			answer = word == 'x' ? regains_write(PRIVATE_PLACE) : looks_right(PRIVATE_PLACE);
			/* Detached, since the sender may still hold its descriptor of the same mount. */
			if (syscall(SYS_umount2, PRIVATE_PLACE, 2 /* MNT_DETACH */) < 0)
				die("umount");
		}
		send_word(socket, answer, -1);
	}
}

static char ask(int socket, char word, int fd)
{
	int none;

	send_word(socket, word, fd);
	return take_word(socket, &none);
}

static int translated(int user_namespace, uint64_t flags)
{
	struct mount_attr attributes = {
		.attr_set = MOUNT_ATTR_IDMAP | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | flags,
		.userns_fd = (uint64_t)user_namespace,
	};
	int tree = (int)syscall(SYS_open_tree, AT_FDCWD, filesystem, OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC);

	if (tree < 0 || syscall(SYS_mount_setattr, tree, "", AT_EMPTY_PATH, &attributes, sizeof(attributes)) < 0)
		die("idmapped mount");
	return tree;
}

static char by_dock(int socket, int user_namespace, uint64_t flags, char word)
{
	int tree = translated(user_namespace, flags);

	if (syscall(SYS_move_mount, tree, "", AT_FDCWD, dock_home, MOVE_MOUNT_F_EMPTY_PATH) < 0)
		die("move_mount");
	close(tree);
	char answer = ask(socket, word, -1);
	if (syscall(SYS_umount2, dock_home, 0) < 0)
		die("umount");
	return answer;
}

static char by_descriptor(int socket, int user_namespace, uint64_t flags, char word)
{
	int tree = translated(user_namespace, flags);
	char answer = ask(socket, word, tree);

	close(tree);
	return answer;
}

static int ascending(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static void measure(const char *name, char (*way)(int, int, uint64_t, char), int socket, int ns, char word, int rounds)
{
	double *took = calloc((size_t)rounds, sizeof(double));

	for (int i = 0; i < rounds; i++) {
		double start = now_us();
		if (way(socket, ns, 0, word) != 'y')
			die("the file was not seen");
		took[i] = now_us() - start;
	}
	qsort(took, (size_t)rounds, sizeof(double), ascending);
	printf("%s_p50_us\t%.1f\n%s_p95_us\t%.1f\n", name, took[rounds / 2], name, took[rounds * 95 / 100]);
	free(took);
}

static int map_ids(pid_t pid)
{
	char path[64];

	for (int i = 0; i < 2; i++) {
		snprintf(path, sizeof(path), "/proc/%d/%s", pid, i ? "uid_map" : "gid_map");
		int map = open(path, O_WRONLY);
		if (map < 0 || write(map, "0 1000000 65536", 15) != 15)
			die(path);
		close(map);
	}
	snprintf(path, sizeof(path), "/proc/%d/ns/user", pid);
	return open(path, O_RDONLY | O_CLOEXEC);
}

int main(int argc, char **argv)
{
	static char home[4096];
	int pair[2], none;

	if (argc != 4 || socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
		return 64;
	filesystem = argv[1];
	snprintf(home, sizeof(home), "%s/home", argv[2]);
	dock_home = home;
	pid_t pid = fork();
	if (pid == 0) {
		close(pair[0]);
		slot(pair[1]);
	}
	close(pair[1]);
	take_word(pair[0], &none);
	int user_namespace = map_ids(pid);
	send_word(pair[0], 'g', -1);
	take_word(pair[0], &none);
	measure("dock", by_dock, pair[0], user_namespace, 'd', atoi(argv[3]));
	measure("descriptor", by_descriptor, pair[0], user_namespace, 'f', atoi(argv[3]));
	printf("dock_regains_write\t%c\n", by_dock(pair[0], user_namespace, MOUNT_ATTR_RDONLY, 'w'));
	printf("descriptor_regains_write\t%c\n", by_descriptor(pair[0], user_namespace, MOUNT_ATTR_RDONLY, 'x'));
	close(pair[0]);
	waitpid(pid, NULL, 0);
	return 0;
}
