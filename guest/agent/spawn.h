/* Starts a process of a sandbox. */
#ifndef GLOVEBOX_AGENT_SPAWN_H
#define GLOVEBOX_AGENT_SPAWN_H

#include <sys/types.h>

#include "../prepare.h"
#include "request.h"

/* The agent's ends of what a process reads and writes: non-blocking and close-on-exec; -1 if absent. */
struct spawn_ends {
	int in;
	int out;
	int err;
	int channel;
	int failure; /* receives why the program could not be executed; at its end, it was executed */
};

#define SPAWN_ENDS_NONE {-1, -1, -1, -1, -1}

/* Forks. Returns the pid, or -1 with fail_text. */
pid_t spawn(const struct spawn_request *request, const struct preparation *limits, struct spawn_ends *ends);

void spawn_close(int *fd);

#endif
