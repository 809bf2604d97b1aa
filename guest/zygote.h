/* The zygote of a slot, as the guest sees it; zygote-protocol.h has the messages. */
#ifndef GLOVEBOX_ZYGOTE_H
#define GLOVEBOX_ZYGOTE_H

#include <stdbool.h>
#include <sys/types.h>

#include "jail.h"
#include "prepare.h"
#include "zygote-protocol.h"

struct zygote {
	pid_t pid;  /* 0: not started */
	int socket; /* non-blocking; -1: it is gone, or was not started */
};

/* Starts the program of `preparation` (its ARG and ENV) outside of any jail, with the image as its root; `is_spare`: as the spare
 * interpreter. Returns 0, or -1 with fail_text. */
int zygote_start(struct zygote *zygote, const struct preparation *preparation, bool is_spare);

/* Requests a child in the jail whose namespaces and streams are given. Returns 0, or -1 with fail_text. */
int zygote_join(const struct zygote *zygote, const struct preparation *preparation, const int passed[JOIN_DESCRIPTORS]);

/* Checks that the zygote has one thread: locks of other threads would never be released in a child. Returns 0, or -1 with
 * fail_text. */
int zygote_is_single_threaded(const struct zygote *zygote);

/* Gives the spare interpreter what its fork needs to join the jail. Returns 0, or -1 with fail_text. */
int zygote_join_sandbox(const struct zygote *spare, const struct preparation *preparation, const int passed[JAIL_PASSED]);

/* Receives the next report. Returns 1; 0 if none has arrived; -1 after the last one. */
int zygote_report(const struct zygote *zygote, struct zygote_report *report);

#endif
