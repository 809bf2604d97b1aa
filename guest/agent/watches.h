/* Reports changes of files as records on standard output, until it is killed. */
#ifndef GLOVEBOX_AGENT_WATCHES_H
#define GLOVEBOX_AGENT_WATCHES_H

#include <stdbool.h>

/* A record: u32 length of what follows, u8 kind (c created, m changed, d deleted, f moved from, t moved to), path. The first, of
 * kind r, says that everything is watched. Returns -1 with errno. */
int watches_run(const char *path, bool is_recursive);

#endif
