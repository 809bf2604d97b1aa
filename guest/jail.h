/* The jail: fresh namespaces for one run, an init that only reaps, and the main process that becomes the program. */
#ifndef GLOVEBOX_JAIL_H
#define GLOVEBOX_JAIL_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "fail.h"
#include "zygote-protocol.h"
#include "prepare.h"

/* What the init of a prewarmed jail passes on: its namespaces, and the descriptor that writes its CODE_FILE if it has one. That of a
 * sandbox with SPARE passes on its end of the socket to the spare interpreter instead, and one more namespace. */
enum jail_passed {
	JAIL_PID,
	JAIL_MNT,
	JAIL_NET,
	JAIL_IPC,
	JAIL_UTS,
	JAIL_NAMESPACES,
	JAIL_CODE = JAIL_NAMESPACES,
	JAIL_SPARE = JAIL_CODE,
	JAIL_CGROUP,
	JAIL_PASSED
};

/* A jail, as the guest holds it. Descriptors are close-on-exec and non-blocking; -1 if absent. */
struct jail {
	pid_t init;
	int channel; /* receives the reports of the init; sends the byte that means GO */
	int in;      /* standard input of the program, for writing; -1: it has /dev/null */
	int out;
	int err;
	int pictures; /* what the program writes to PICTURES_FD */
	/* Of a prewarmed jail: */
	pid_t main;                  /* 0: not known yet */
	int control_fd;              /* receives the reports of a process that the zygote forked; sends its request */
	/* Until that process has joined; JAIL_MNT until storage is attached, JAIL_CODE until the source text is written. */
	int passed[JAIL_PASSED];
};

/* No jail. */
#define JAIL_NONE {.init = -1, .channel = -1, .in = -1, .out = -1, .err = -1, .pictures = -1, .control_fd = -1, \
		   .passed = {-1, -1, -1, -1, -1, -1, -1}}

/* The descriptors of the jail: the other ends of those above. */
struct child_fds {
	int channel;
	int in;
	int out;
	int err;
	int pictures;
};

/* No descriptors. */
#define CHILD_FDS_NONE {-1, -1, -1, -1, -1}

enum report_kind {
	REPORT_READY = 1,  /* the main process waits for GO; `value` is its pid as the guest sees it */
	REPORT_FAILED = 2, /* making the jail failed: `text` */
	REPORT_STATUS = 3, /* the main process ended: `value` is its wait status */
	REPORT_MADE = 4,   /* a prewarmed jail is made; its descriptors are attached */
};

struct report {
	uint8_t kind;
	int32_t value;
	char text[FAIL_TEXT_BYTES];
};

/* Opens the descriptors of a new jail and prepares the mounts that it needs in the slot. The jail has no init yet. Returns
 * 0, or -1 with fail_text; then nothing stays open. */
int jail_open(struct jail *jail, struct child_fds *child_fds, const struct preparation *preparation);

/* Whether the standard input of the program is a pipe; otherwise it is /dev/null. */
bool jail_is_fed(const struct preparation *preparation);

void child_fds_close(struct child_fds *child_fds);

/* In jail-init.c. Runs in a process that was cloned with fresh namespaces: makes the jail from the data of the handover, as its init, and
 * reports on the channel. */
_Noreturn void jail_become_init(const struct child_fds *child_fds);

/* Receives the next report from `channel` or `control_fd`, and the descriptors attached to it. Returns 1; 0 when there is
 * none now; -1 when no more will come. */
int jail_report(struct jail *jail, int from, struct report *report);

/* Opens `control_fd`; `theirs` is the other end, for the process that joins. Returns 0, or -1 with fail_text. */
int jail_open_control(struct jail *jail, int *theirs);

/* Closes every descriptor. */
void jail_forget(struct jail *jail);

/* Sends GO to the main process, which then calls exec. Returns 0, or -1 when it is dead. */
int jail_go(const struct jail *jail);

/* Sends the request to the process that has joined. Returns 0, or -1 when it is dead. */
int jail_send_request(const struct jail *jail, struct run_request request);

/* Kills every process of the jail. The guest receives SIGCHLD when the last of them is dead. */
void jail_kill(const struct jail *jail);

/* Closes a descriptor and sets it to -1. */
void jail_close(int *fd);

#endif
