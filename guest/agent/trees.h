/* Copying and removing files and directories with all that they hold. Links are not followed. */
#ifndef GLOVEBOX_AGENT_TREES_H
#define GLOVEBOX_AGENT_TREES_H

#include <stdbool.h>

/* Each returns 0, or -1 with errno. */

int trees_copy(const char *from, const char *to, bool may_replace);
int trees_move(const char *from, const char *to, bool may_replace);
int trees_remove(const char *path, bool is_recursive);

/* Copies what is left of one open file to another. */
int trees_copy_content(int from, int to);

#endif
