/* The jail: fresh namespaces for one run, an init that only reaps, and the main process that becomes the program. */
#ifndef GLOVEBOX_JAIL_H
#define GLOVEBOX_JAIL_H

#include <stdint.h>
#include <sys/types.h>

#include "fail.h"
#include "zygote-protocol.h"
#include "prepare.h"

enum jail_namespace { JAIL_PID, JAIL_MNT, JAIL_NET, JAIL_IPC, JAIL_UTS, JAIL_NAMESPACES };

/* The guest's side of a jail. Descriptors are close-on-exec and non-blocking, -1 where there is none. */
struct jail {
	pid_t init;
	int channel; /* reports come out, the one byte that means GO goes in */
	int in;      /* the program's standard input, to be written; -1: it has /dev/null */
	int out;
	int err;
	int images; /* what it writes to IMAGES */
	/* Of a jail that a host's child joins: */
	pid_t main;                  /* 0: not known yet */
	int talk;                    /* its reports come out, its request goes in */
	int spaces[JAIL_NAMESPACES]; /* until it has joined; JAIL_MNT as long as storage may come */
};

/* No jail. */
#define JAIL_NONE {.init = -1, .channel = -1, .in = -1, .out = -1, .err = -1, .images = -1, .talk = -1, .spaces = {-1, -1, -1, -1, -1}}

/* The other ends, on their way to the jail. */
struct ends {
	int channel;
	int in;
	int out;
	int err;
	int images;
};

/* No ends. */
#define ENDS_NONE {-1, -1, -1, -1, -1}

enum report_kind {
	REPORT_READY = 1,  /* the main process waits for GO; `value` is its pid as the guest sees it */
	REPORT_FAILED = 2, /* making the jail failed: `text` */
	REPORT_STATUS = 3, /* the main process ended: `value` is its wait status */
	REPORT_MADE = 4,   /* of a jail that is made ahead: it has no main process yet, its namespaces come along */
};

struct report {
	uint8_t kind;
	int32_t value;
	char text[FAIL_TEXT_BYTES];
};

/* Makes the descriptors of a jail that is to be, and what its mounts need of the slot. `jail` has no init yet. Returns
 * 0, or -1 with fail_text; then nothing is left. */
int jail_open(struct jail *jail, struct ends *ends, const struct preparation *preparation);

void jail_close_ends(struct ends *ends);

/* In a process that was cloned with fresh namespaces: becomes the jail's init, which goes on alone, made from what the
 * handover holds, and reports on the channel. */
_Noreturn void jail_become_init(const struct ends *ends);

/* Takes the next report from `channel` or `talk`; namespaces that come along go into the jail. Returns 1, 0 when there
 * is none now, -1 when there will be none any more. */
int jail_report(struct jail *jail, int from, struct report *report);

/* Makes `talk`; `theirs` is its other end, for what is to join. Returns 0, or -1 with fail_text. */
int jail_open_talk(struct jail *jail, int *theirs);

/* Closes every descriptor. */
void jail_forget(struct jail *jail);

/* Lets the main process go on to its exec. Returns 0, or -1 when it is dead. */
int jail_go(const struct jail *jail);

/* Tells what has joined what its run is. Returns 0, or -1 when it is dead. */
int jail_tell(const struct jail *jail, struct join_request request);

/* Kills every process of the jail; the guest sees SIGCHLD when the last of them is gone. */
void jail_kill(const struct jail *jail);

/* Closes a descriptor of the jail, once. */
void jail_close(int *fd);

#endif
