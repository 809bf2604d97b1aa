/* From a process of the agent to one that was requested: descriptors, user, limits and working directory. */
#ifndef GLOVEBOX_AGENT_BECOME_H
#define GLOVEBOX_AGENT_BECOME_H

#include <stdbool.h>

#include "../prepare.h"
#include "request.h"

/* Descriptors of a new process, above the standard ones; those above CHANNEL only until its exec. */
#define CHANNEL 3
#define FAILURE 4

/* The process's ends of what it reads and writes; -1 if absent. */
struct theirs {
	int in;
	int out;
	int err;
	int channel;
	int failure; /* receives why the program could not be executed; at its end, it was executed */
	int terminal;
};

#define THEIRS_NONE {-1, -1, -1, -1, -1, -1}

/* Turns the caller, a child of the agent with its rights, into the requested process, and closes every other descriptor; with
 * `keeps_layers`, those of sandbox.h stay open. Exits after it has reported a failure. */
void become(const struct spawn_request *request, const struct preparation *limits, const struct theirs *theirs,
	    bool keeps_layers);

/* Executes the program of the request with signals as they are by default, or exits after it has reported why it cannot. */
_Noreturn void become_execute(const struct spawn_request *request);

/* Reports fail_text, and exits. */
_Noreturn void become_give_up(void);

#endif
