/* The process that the zygote forks for a run. */
#ifndef GLOVEBOX_PYTHON_CHILD_H
#define GLOVEBOX_PYTHON_CHILD_H

#include <stddef.h>

#include "../zygote-protocol.h"

struct program_text {
	char *text;
	size_t bytes;
};

/* Joins the jail, gives up every privilege, and waits for the request of the run. Returns with its source text; exits when
 * a step fails or the guest is gone. */
void child_become_run(const struct join *join, const int passed[JOIN_DESCRIPTORS], struct program_text *source);

#endif
