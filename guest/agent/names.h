/* The names of the entries of directories. */
#ifndef GLOVEBOX_AGENT_NAMES_H
#define GLOVEBOX_AGENT_NAMES_H

#include <stddef.h>

struct names {
	char **list;
	size_t count, room;
};

/* Adds the names in a directory, which may be -1: none. Returns 0, or -1 with errno when not all were added. */
int names_add(struct names *names, int directory);

void names_sort(struct names *names);
void names_forget(struct names *names);

#endif
