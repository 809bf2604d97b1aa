/* Generated files that show a run its limits of memory, processor time and processes, where programs look for them:
 * meminfo, and sys/fs/cgroup in the shape of cgroup v2 and, below memory/, cpu/ and pids/, of v1. */
#ifndef GLOVEBOX_LIMIT_VIEWS_H
#define GLOVEBOX_LIMIT_VIEWS_H

#include "prepare.h"

/* The directory of the latter. */
#define CGROUP_VIEWS "sys/fs/cgroup"

/* Makes them among the views of the run, which has sys/fs. Returns 0, or -1 with fail_text. */
int limit_views_make(const struct preparation *preparation);

#endif
