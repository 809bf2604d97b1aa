#include "own-file.h"

#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* How a program asks for its own file: see src/base/program-copy.ts. */
#define FILE_QUESTION "__file__"
#define ARGUMENT_QUESTION "argv[0]"

/* A reserved name: see src/base/program-copy.ts. */
#define COPY ".glovebox-main.py"

static char *read_whole(const char *path, size_t *length)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	struct stat status;
	char *text = NULL;

	if (fd < 0)
		return NULL;
	if (fstat(fd, &status) == 0 && (text = malloc((size_t)status.st_size + 1)) != NULL) {
		ssize_t got = read(fd, text, (size_t)status.st_size);
		*length = got > 0 ? (size_t)got : 0;
	}
	close(fd);
	return text;
}

/* What an earlier run may have left under this name is replaced, never followed. */
static bool write_copy(const char *text, size_t length)
{
	unlink(COPY);
	int fd = open(COPY, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644);
	if (fd < 0)
		return false;
	bool is_written = write(fd, text, length) == (ssize_t)length;
	close(fd);
	if (!is_written)
		unlink(COPY);
	return is_written;
}

static bool contains(const char *text, size_t length, const char *question)
{
	return memmem(text, length, question, strlen(question)) != NULL;
}

enum own_file own_file_copy(const char *program, char *path, size_t size)
{
	char home[1025];
	size_t length = 0;
	char *text = read_whole(program, &length);
	bool asks_argument = text != NULL && contains(text, length, ARGUMENT_QUESTION);
	bool asks = asks_argument || (text != NULL && contains(text, length, FILE_QUESTION));
	bool is_copied = asks && getcwd(home, sizeof(home)) != NULL && write_copy(text, length);

	free(text);
	if (!is_copied || snprintf(path, size, "%s/%s", home, COPY) >= (int)size)
		return OWN_FILE_ORIGINAL;
	return asks_argument ? OWN_FILE_COPY_AS_ARGUMENT : OWN_FILE_COPY;
}
