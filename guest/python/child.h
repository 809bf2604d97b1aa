/* The process that the zygote forks for a run. */
#ifndef GLOVEBOX_PYTHON_CHILD_H
#define GLOVEBOX_PYTHON_CHILD_H

#include "../zygote-protocol.h"

/* Joins the jail, gives up every privilege, and waits for the request of the run. Returns when its source
 * text is in its file; exits when a step fails or the guest is gone. */
void child_become_run(const struct join *join, const int passed[JOIN_DESCRIPTORS]);

#endif
