/* Prewarmed jails, which are made before their run is known, and the zygote that forks their interpreters. */
#ifndef GLOVEBOX_PREWARM_H
#define GLOVEBOX_PREWARM_H

#include "run.h"

/* Functions that return text return NULL, or the reason why the slot must end. */

/* Handles ZYGOTE: starts the zygote. */
const char *prewarm_start_zygote(struct run *run, const struct frame *frame);

/* Handles the reports of the zygote. */
const char *prewarm_take_zygote(struct run *run, struct outbox *outbox);

/* Asks the zygote for a process in the jail, which is made. */
void prewarm_join(struct run *run);

/* Handles BEGIN: the jail has its run. */
const char *prewarm_begin(struct run *run, const struct frame *frame);

/* Starts the run once all of its source text has arrived and its storage is attached. */
void prewarm_hand_over(struct run *run);

#endif
