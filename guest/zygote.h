/* A language host of the slot, as the guest sees it: joining.h says what it is. */
#ifndef GLOVEBOX_ZYGOTE_H
#define GLOVEBOX_ZYGOTE_H

#include <sys/types.h>

#include "zygote-protocol.h"
#include "prepare.h"

struct host {
	pid_t pid;  /* 0: none was started */
	int socket; /* -1: it is gone, or was never there; non-blocking */
};

/* Starts the program of `preparation` (its ARG and ENV) outside of any jail, seeing the image alone. Returns 0, or -1
 * with fail_text. */
int host_start(struct host *host, const struct preparation *preparation);

/* Asks it to fork a child into the jail whose namespaces and streams are given. Returns 0, or -1 with fail_text. */
int host_join(const struct host *host, const struct preparation *preparation, const int passed[JOIN_DESCRIPTORS]);

/* Whether it has one thread only: what others hold would never be released in what is forked. Returns 0, or -1 with
 * fail_text. */
int host_is_alone(const struct host *host);

/* Takes the next report. Returns 1, 0 when there is none now, -1 when there will be none any more. */
int host_report(const struct host *host, struct host_report *report);

#endif
