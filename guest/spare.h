/* The spare interpreter of a slot, from which the first Python kernel of a sandbox is forked. It is started before anything is
 * known of the sandbox, and serves one only. */
#ifndef GLOVEBOX_SPARE_H
#define GLOVEBOX_SPARE_H

#include "frames.h"
#include "run.h"

/* Functions that return text return NULL, or the reason why the slot must end. */

/* Handles SPARE. */
const char *spare_start(struct run *run, const struct frame *frame, struct outbox *outbox);

/* Gives it to the sandbox whose init has reported its namespaces; they are closed. Without one, the agent finds its socket closed. */
void spare_join(struct run *run);

/* Ends it. */
void spare_end(struct run *run);

/* Handles its reports, and its end. */
const char *spare_take(struct run *run, struct outbox *outbox);

#endif
