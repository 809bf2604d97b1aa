#include "code-file.h"

#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "binds.h"
#include "fail.h"
#include "views.h"

#define CODE_DIRECTORY IMAGE "/run/glovebox"
#define CERTIFICATES IMAGE "/run/ca-certificates.crt"
#define CODE_IN_JAIL "/run/glovebox/"
#define HOME_BYTES_MAX 1024

static int write_whole(int fd, const uint8_t *bytes, uint64_t left)
{
	while (left > 0) {
		ssize_t put = write(fd, bytes, left);
		if (put < 0)
			return -1;
		bytes += put;
		left -= (uint64_t)put;
	}
	return 0;
}

/* Creates the file of the source text. Its descriptor refers to a copy of the mount, so that the mount itself can be
 * sealed while the text is still to be written. */
static int create_code(const char *name)
{
	char path[sizeof("glovebox/") + NAME_MAX + 1];

	snprintf(path, sizeof(path), "glovebox/%s", name);
	int copy = (int)syscall(SYS_open_tree, AT_FDCWD, IMAGE "/run", OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC);
	if (copy < 0)
		return fail("copy the mount of the code file");
	int fd = openat(copy, path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0444);
	if (fd < 0)
		fail("make the code file");
	close(copy);
	return fd;
}

int code_file_write(int fd, const uint8_t *code, uint64_t bytes)
{
	int written = write_whole(fd, code, bytes);

	close(fd);
	return written < 0 ? fail("write the code file") : 0;
}

static int write_certificates(const char *certificates)
{
	int fd = open(CERTIFICATES, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0444);

	if (fd < 0)
		return fail("make the file of certificates");
	int written = write_whole(fd, (const uint8_t *)certificates, strlen(certificates));
	close(fd);
	return written < 0 ? fail("write the certificates") : 0;
}

int code_file_mount(const struct preparation *p)
{
	uint64_t bytes = (p->prewarm == PREWARM_NONE ? p->code_bytes : SOURCE_MAX_BYTES) +
			 (p->certificates == NULL ? 0 : strlen(p->certificates));
	char options[96];

	if (p->code_file == NULL)
		return NO_CODE;
	snprintf(options, sizeof(options), "mode=0755,size=%" PRIu64 ",nr_inodes=16", bytes + 65536);
	if (mount("tmpfs", IMAGE "/run", "tmpfs", SEALED, options) < 0)
		return fail("mount /run");
	if (mkdir(CODE_DIRECTORY, 0755) < 0)
		return fail("make the directory of the code file");
	if (p->certificates != NULL && write_certificates(p->certificates) < 0)
		return -1;
	int fd = create_code(p->code_file);
	return fd < 0 || binds_seal(IMAGE "/run", 0, READ_ONLY) < 0 ? -1 : fd;
}

/* As the user of the jail: the name may be taken by what an earlier run has left, which is replaced and never followed. */
static int copy_code(const char *from, const char *to)
{
	int source = open(from, O_RDONLY | O_CLOEXEC);
	struct stat status;

	if (source < 0 || fstat(source, &status) < 0)
		return -1;
	unlink(to);
	int copy = open(to, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644);
	ssize_t copied = copy < 0 ? -1 : sendfile(copy, source, NULL, (size_t)status.st_size);
	close(source);
	if (copy >= 0)
		close(copy);
	if (copied == status.st_size)
		return 0;
	if (copy >= 0)
		unlink(to);
	return -1;
}

void code_file_copy(const struct preparation *p)
{
	static char path[HOME_BYTES_MAX + 1 + NAME_MAX + 1];
	char file[sizeof(CODE_IN_JAIL) + NAME_MAX];

	if (p->home_code_file == NULL || p->code_file == NULL)
		return;
	snprintf(file, sizeof(file), CODE_IN_JAIL "%s", p->code_file);
	snprintf(path, sizeof(path), "%s/%s", p->home, p->home_code_file);
	if (copy_code(file, path) < 0)
		return;
	for (char **word = p->args; *word != NULL; word++)
		if (strcmp(*word, file) == 0)
			*word = path;
}
