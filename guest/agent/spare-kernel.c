#include "spare-kernel.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../frames.h"
#include "../pass.h"
#include "../sandbox.h"
#include "../zygote-protocol.h"
#include "users.h"

/* The command line of a Python kernel begins with these. */
#define PYTHON "python3"
#define KERNEL "/opt/glovebox/kernels/python/main.py"

/* A fork takes a millisecond; a sandbox that has used up its processor time waits for it longer. */
#define FORK_WITHIN_MS 2000

#define RECORD_HEADER_BYTES 5u

static bool is_python_kernel(const struct spawn_request *request)
{
	return request->builtin == 0 && request->has_channel && request->columns == 0 && request->args[0] != NULL &&
	       strcmp(request->args[0], PYTHON) == 0 && request->args[1] != NULL && strcmp(request->args[1], KERNEL) == 0;
}

static bool begins_with(const char *name, const char *const *beginnings)
{
	for (; *beginnings != NULL; beginnings++)
		if (strncmp(name, *beginnings, strlen(*beginnings)) == 0)
			return true;
	return false;
}

/* Whether a directory of the disk has an entry whose name begins so. A directory that is not there has none. */
static bool has_entry(const char *path, const char *const *beginnings)
{
	int fd = openat(SANDBOX_DISK, path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	bool is_found = false;

	if (fd < 0)
		return errno != ENOENT;
	DIR *directory = fdopendir(fd);
	if (directory == NULL) {
		close(fd);
		return true;
	}
	for (const struct dirent *entry = readdir(directory); entry != NULL && !is_found; entry = readdir(directory))
		is_found = strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0 &&
			   begins_with(entry->d_name, beginnings);
	closedir(directory);
	return is_found;
}

/* Whether the sandbox has the files of its image that an interpreter reads when it starts: the disk holds every change. */
static bool has_files_of_image(void)
{
	static const char *const any[] = {"", NULL};
	static const char *const programs[] = {"bin", "lib", "opt", "sbin", "usr", NULL};
	static const char *const settings[] = {"ld.so", "locale", "python3", NULL};

	return !has_entry("upper/usr", any) && !has_entry("upper/root", programs) && !has_entry("upper/root/etc", settings);
}

static bool lacks_home(char *const *env)
{
	for (; *env != NULL; env++)
		if (strncmp(*env, "HOME=", 5) == 0)
			return false;
	return true;
}

struct records {
	uint8_t *bytes;
	size_t filled; /* counted also beyond the room */
};

static void add_record(struct records *records, uint8_t tag, const char *text)
{
	size_t length = text == NULL ? 0 : strlen(text);
	size_t whole = RECORD_HEADER_BYTES + length;

	if (whole <= SPARE_REQUEST_MAX_BYTES && records->filled + whole <= SPARE_REQUEST_MAX_BYTES) {
		uint8_t *at = records->bytes + records->filled;
		at[0] = tag;
		write_u32(at + 1, (uint32_t)length);
		memcpy(at + RECORD_HEADER_BYTES, text == NULL ? "" : text, length);
	}
	records->filled += whole;
}

static void add_words(struct records *records, uint8_t tag, char *const *words, uint32_t *bytes)
{
	for (; *words != NULL; words++) {
		add_record(records, tag, *words);
		*bytes += (uint32_t)strlen(*words) + 1;
	}
}

/* Adds HOME where the request has none, as a started process has it. Returns whether all of it has room. */
static bool add_request(struct records *records, const struct spawn_request *request, struct spare_request *header)
{
	char home[USER_HOME_BYTES + 8];
	char *added[] = {home, NULL};
	struct user user;

	add_words(records, SPAWN_ARG, request->args, &header->args_bytes);
	add_words(records, SPAWN_ENV, request->env, &header->env_bytes);
	if (lacks_home(request->env)) {
		if (users_find(&user, request->user) < 0)
			return false;
		snprintf(home, sizeof(home), "HOME=%s", user.home);
		add_words(records, SPAWN_ENV, added, &header->env_bytes);
	}
	add_record(records, SPAWN_CWD, request->cwd);
	add_record(records, SPAWN_USER, request->user);
	add_record(records, SPAWN_CHANNEL, NULL);
	if (request->has_stdin)
		add_record(records, SPAWN_STDIN, NULL);
	if (request->makes_cwd)
		add_record(records, SPAWN_MAKE_CWD, NULL);
	header->bytes = (uint32_t)records->filled;
	return records->filled <= SPARE_REQUEST_MAX_BYTES;
}

/* Lets the spare interpreter fork. Returns the pid of the child, or -1. */
static pid_t fork_spare(void)
{
	struct pollfd answer = {.fd = SANDBOX_SPARE, .events = POLLIN};
	int32_t pid;

	if (send(SANDBOX_SPARE, "", 1, MSG_NOSIGNAL) != 1 || poll(&answer, 1, FORK_WITHIN_MS) != 1)
		return -1;
	return recv(SANDBOX_SPARE, &pid, sizeof(pid), MSG_DONTWAIT) == sizeof(pid) && pid > 1 ? pid : -1;
}

/* The child reads at once, and both messages fit into the buffer of the socket. */
static bool send_request(const struct spare_request *header, const struct records *records, const struct theirs *theirs)
{
	const int passed[SPARE_DESCRIPTORS] = {
		[SPARE_IN] = theirs->in,
		[SPARE_OUT] = theirs->out,
		[SPARE_ERR] = theirs->err,
		[SPARE_CHANNEL] = theirs->channel,
		[SPARE_FAILURE] = theirs->failure,
	};

	return pass_send(SANDBOX_SPARE, header, sizeof(*header), passed, SPARE_DESCRIPTORS) == 0 &&
	       send(SANDBOX_SPARE, records->bytes, records->filled, MSG_NOSIGNAL) == (ssize_t)records->filled;
}

static pid_t start(const struct spawn_request *request, const struct theirs *theirs, struct records *records)
{
	struct spare_request header = {0};

	if (!has_files_of_image() || records->bytes == NULL || !add_request(records, request, &header))
		return -1;
	pid_t pid = fork_spare();
	return pid > 0 && send_request(&header, records, theirs) ? pid : -1;
}

pid_t spare_kernel_start(const struct spawn_request *request, const struct theirs *theirs)
{
	struct records records = {.filled = 0};

	if (!is_python_kernel(request) || fcntl(SANDBOX_SPARE, F_GETFD) < 0)
		return -1;
	records.bytes = malloc(SPARE_REQUEST_MAX_BYTES);
	pid_t pid = start(request, theirs, &records);
	if (records.bytes != NULL)
		explicit_bzero(records.bytes, SPARE_REQUEST_MAX_BYTES);
	free(records.bytes);
	/* It serves one request, and ends when this is closed. */
	close(SANDBOX_SPARE);
	return pid;
}
