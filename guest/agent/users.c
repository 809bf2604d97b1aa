#include "users.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../fail.h"
#include "../ids.h"

/* Larger files are not read. */
#define FILE_MAX_BYTES (1024u * 1024)
/* The range of ids that a slot has. */
#define ID_MAX 65535ul

/* Returns the text of a file, to be freed; NULL if it cannot be read. Never waits for a writer. */
static char *read_file(const char *path)
{
	struct stat status;
	int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
	char *text = NULL;
	size_t filled = 0;

	if (fd >= 0 && fstat(fd, &status) == 0 && S_ISREG(status.st_mode) && status.st_size <= FILE_MAX_BYTES)
		text = malloc((size_t)status.st_size + 1);
	while (text != NULL && filled < (size_t)status.st_size) {
		ssize_t got = read(fd, text + filled, (size_t)status.st_size - filled);
		if (got <= 0)
			break;
		filled += (size_t)got;
	}
	if (text != NULL)
		text[filled] = '\0';
	if (fd >= 0)
		close(fd);
	return text;
}

static bool parse_id(const char *text, unsigned long *id)
{
	char *end;

	if (text == NULL || text[0] < '0' || text[0] > '9')
		return false;
	errno = 0;
	*id = strtoul(text, &end, 10);
	return errno == 0 && *end == '\0' && *id <= ID_MAX;
}

/* Fills in the user of the line that has this name, or this number if `is_number`. */
static bool take_line(struct user *user, char *line, const char *name, bool is_number, unsigned long number)
{
	char *fields[7] = {NULL};
	unsigned long uid;
	unsigned long gid;

	for (size_t i = 0; i < 7; i++)
		fields[i] = strsep(&line, ":");
	if (!parse_id(fields[2], &uid) || !parse_id(fields[3], &gid) || fields[5] == NULL)
		return false;
	if (strcmp(fields[0], name) != 0 && !(is_number && uid == number))
		return false;
	user->uid = (uid_t)uid;
	user->gid = (gid_t)gid;
	strncpy(user->home, fields[5][0] == '/' ? fields[5] : "/", sizeof(user->home) - 1);
	return true;
}

static bool is_member(char *members, const char *name)
{
	for (char *member = strsep(&members, ","); member != NULL; member = strsep(&members, ","))
		if (strcmp(member, name) == 0)
			return true;
	return false;
}

static void find_groups(struct user *user, const char *name)
{
	char *text = read_file("/etc/group");
	char *rest = text;

	for (char *line = strsep(&rest, "\n"); line != NULL; line = strsep(&rest, "\n")) {
		char *fields[4] = {NULL};
		unsigned long gid;
		for (size_t i = 0; i < 4; i++)
			fields[i] = strsep(&line, ":");
		if (user->group_count < USER_GROUPS_MAX && fields[3] != NULL && parse_id(fields[2], &gid) &&
		    is_member(fields[3], name))
			user->groups[user->group_count++] = (gid_t)gid;
	}
	free(text);
}

int users_find(struct user *user, const char *name)
{
	unsigned long number = 0;
	bool is_number = parse_id(name, &number);
	bool is_found = false;
	char *text = read_file("/etc/passwd");
	char *rest = text;

	*user = (struct user){.uid = (uid_t)number, .gid = (gid_t)number, .home = "/"};
	for (char *line = strsep(&rest, "\n"); line != NULL && !is_found; line = strsep(&rest, "\n"))
		is_found = take_line(user, line, name, is_number, number);
	free(text);
	/* Root exists also where its own file was removed. */
	if (!is_found && strcmp(name, "root") == 0)
		is_found = true;
	if (is_found)
		find_groups(user, name);
	if (is_found || is_number)
		return 0;
	errno = ENOENT;
	return fail("the user %.64s", name);
}

int users_become(const struct user *user)
{
	if (setgroups(user->group_count, user->groups) < 0)
		return fail("enter the groups of the user");
	if (setresgid(user->gid, user->gid, user->gid) < 0)
		return fail("become group %u", user->gid);
	if (user->uid == 0)
		return 0;
	if (setresuid(user->uid, user->uid, user->uid) < 0)
		return fail("become user %u", user->uid);
	return ids_drop_capabilities();
}
