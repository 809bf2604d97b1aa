/* The zygote of a slot, as the guest sees it; zygote-protocol.h has the messages. */
#ifndef GLOVEBOX_ZYGOTE_H
#define GLOVEBOX_ZYGOTE_H

#include <sys/types.h>

#include "prepare.h"
#include "zygote-protocol.h"

struct zygote {
	pid_t pid;  /* 0: not started */
	int socket; /* non-blocking; -1: it is gone, or was not started */
};

/* Starts the program of `preparation` (its ARG and ENV) outside of any jail, with the image as its root. Returns 0, or -1
 * with fail_text. */
int zygote_start(struct zygote *zygote, const struct preparation *preparation);

/* Requests a child in the jail whose namespaces and streams are given. Returns 0, or -1 with fail_text. */
int zygote_join(const struct zygote *zygote, const struct preparation *preparation, const int passed[JOIN_DESCRIPTORS]);

/* Checks that the zygote has one thread: locks of other threads would never be released in a child. Returns 0, or -1 with
 * fail_text. */
int zygote_is_single_threaded(const struct zygote *zygote);

/* Receives the next report. Returns 1; 0 if none has arrived; -1 after the last one. */
int zygote_report(const struct zygote *zygote, struct zygote_report *report);

#endif
