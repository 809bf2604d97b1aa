/* What a run has to do with jails that are made ahead and with the language host. */
#ifndef GLOVEBOX_PREWARM_H
#define GLOVEBOX_PREWARM_H

#include "run.h"

/* Each function that returns text: NULL, or what is wrong; then the slot is to end. */

/* HOST: starts the language host. */
const char *ahead_start_host(struct run *run, const struct frame *frame);

/* Takes what the host has to say. */
const char *ahead_take_host(struct run *run, struct outbox *outbox);

/* The jail is there, and what the host forks is to join it. */
const char *ahead_join(struct run *run);

/* BEGIN: the jail has its run now. */
const char *ahead_begin(struct run *run, const struct frame *frame);

/* Hands the run over once all of it has come. */
const char *ahead_hand_over(struct run *run);

/* The main process has ended. Where the host forked it, nobody in the jail knows, and the jail is ended. */
void ahead_take_status(struct run *run, int status);

#endif
