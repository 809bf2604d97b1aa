/* Users as /etc/passwd and /etc/group of a sandbox name them. */
#ifndef GLOVEBOX_AGENT_USERS_H
#define GLOVEBOX_AGENT_USERS_H

#include <stddef.h>
#include <sys/types.h>

#define USER_GROUPS_MAX 64
#define USER_HOME_BYTES 1024

struct user {
	uid_t uid;
	gid_t gid;
	gid_t groups[USER_GROUPS_MAX];
	size_t group_count;
	char home[USER_HOME_BYTES];
};

/* Finds a user by name or number; a number need not be listed. The files are read as the text that they are: no library that
 * they or other files could name is loaded. Returns 0, or -1 with fail_text. */
int users_find(struct user *user, const char *name);

/* Becomes that user; root keeps the capabilities of the sandbox, others have none. Returns 0, or -1 with fail_text. */
int users_become(const struct user *user);

#endif
