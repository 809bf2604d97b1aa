/* The jail: fresh namespaces for one run, an init that only reaps, and the main process that becomes the program. */
#ifndef GLOVEBOX_JAIL_H
#define GLOVEBOX_JAIL_H

#include <stdint.h>
#include <sys/types.h>

#include "fail.h"
#include "prepare.h"

/* The guest's side of a jail. Descriptors are close-on-exec and non-blocking, -1 where there is none. */
struct jail {
	pid_t init;
	int channel; /* reports come out, the one byte that means GO goes in */
	int in;      /* the program's standard input, to be written; -1: it has /dev/null */
	int out;
	int err;
};

enum report_kind {
	REPORT_READY = 1,  /* the main process waits for GO; `value` is its pid as the guest sees it */
	REPORT_FAILED = 2, /* making the jail failed: `text` */
	REPORT_STATUS = 3, /* the main process ended: `value` is its wait status */
};

struct report {
	uint8_t kind;
	int32_t value;
	char text[FAIL_TEXT_BYTES];
};

/* Clones the jail's init, which goes on alone and reports on the channel. `source` holds the source text, and
 * `source_bytes` is the size of that mapping. Returns 0, or -1 with fail_text; then nothing is left. */
int jail_start(struct jail *jail, const struct preparation *preparation, uint8_t *source, size_t source_bytes);

/* Takes the next report. Returns 1, 0 when there is none now, -1 when there will be none any more. */
int jail_report(const struct jail *jail, struct report *report);

/* Lets the main process go on to its exec. Returns 0, or -1 when it is dead. */
int jail_go(const struct jail *jail);

/* Kills every process of the jail; the guest sees SIGCHLD when the last of them is gone. */
void jail_kill(const struct jail *jail);

/* Closes a descriptor of the jail, once. */
void jail_close(int *fd);

#endif
