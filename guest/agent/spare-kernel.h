/* The first Python kernel of a sandbox as a fork of the spare interpreter of its slot (guest/python/spare.c). */
#ifndef GLOVEBOX_AGENT_SPARE_KERNEL_H
#define GLOVEBOX_AGENT_SPARE_KERNEL_H

#include <sys/types.h>

#include "become.h"
#include "request.h"

/* Requests the process, if it is a Python kernel and the spare interpreter can be one in this sandbox. The process is a child of the
 * agent, as a started one is. Returns its pid, or -1: then the program has to be started. */
pid_t spare_kernel_start(const struct spawn_request *request, const struct theirs *theirs);

#endif
