/* One run, from PREPARE to EXITED or FAILED: a state machine whose states are named for what the run awaits.
 * PROTOCOL.md describes the frames. */
#ifndef GLOVEBOX_RUN_H
#define GLOVEBOX_RUN_H

#include <poll.h>
#include <stdbool.h>
#include <stdint.h>

#include "frames.h"
#include "input.h"
#include "jail.h"
#include "jailer.h"
#include "prepare.h"
#include "relay.h"
#include "zygote.h"

/* A fresh jail goes from SOURCE to GO and RUNNING. A prewarmed one goes from GO to BEGIN, STORAGE (where its run has
 * any) and REQUEST. From every state after SOURCE the end of the jail's init leads to DRAINING. */
enum run_state {
	RUN_NONE,           /* no run; `number` is that of the last one */
	RUN_AWAITS_SOURCE,  /* CODE and STDIN frames */
	RUN_AWAITS_JAILER,  /* the answer of the jailer, which clones the jail's init */
	RUN_AWAITS_INIT,    /* the report that the jail is made */
	RUN_AWAITS_ZYGOTE,  /* the report of the process that the zygote forks */
	RUN_AWAITS_GO,      /* GO; WAITING was sent */
	RUN_AWAITS_BEGIN,   /* BEGIN, for a prewarmed jail */
	RUN_AWAITS_STORAGE, /* the answer of the jailer, which attaches storage; CODE may arrive meanwhile */
	RUN_AWAITS_REQUEST, /* the remaining CODE frames of a prewarmed jail */
	RUN_RUNNING,        /* the end of the jail's init */
	RUN_DRAINING,       /* credit for the remaining output; every process is dead */
	RUN_DISCARDING,     /* the same after KILL: output without credit is dropped */
};

/* How the run will end, as far as it is known. */
enum run_outcome {
	OUTCOME_UNKNOWN,
	OUTCOME_STATUS, /* the main process ended; `status` */
	OUTCOME_FAILED, /* the jail could not be made; `failure` */
};

struct run {
	enum run_state state;
	enum run_outcome outcome;
	bool is_killed;  /* KILL has come */
	uint32_t number; /* 0: there was no run yet */
	int status;      /* wait status of the main process */
	pid_t reaped;    /* a child that was reaped before the pid of the jail's init was known; 0: none */
	uint64_t credit;
	uint64_t picture_credit;
	struct run_request request; /* of a prewarmed jail, from BEGIN on */
	struct preparation preparation;
	struct source source;
	struct input input; /* of the agent of a sandbox */
	struct jail jail;
	struct child_fds child_fds; /* kept until the zygote has received them */
	char failure[FAIL_TEXT_BYTES];

	/* What may still arrive for a run that has ended: it was sent before its sender learned of the end. */
	struct {
		bool go;
		bool request;     /* BEGIN and CODE of a prewarmed jail */
		unsigned answers; /* of the jailer, about storage */
	} late;

	/* Of the slot: these outlive the runs. */
	struct jailer jailer;
	struct zygote zygote;
	struct zygote spare; /* the spare interpreter; `pid` -1: there was one */
};

/* Indexes into the poll set. */
enum run_watch {
	WATCH_JAILER,
	WATCH_ZYGOTE,
	WATCH_SPARE,
	WATCH_CHANNEL,
	WATCH_CONTROL,
	WATCH_IN,
	WATCH_OUT,
	WATCH_ERR,
	WATCH_PICTURES,
	RUN_WATCHES
};

/* The error for a frame that is not output and does not fit: only a runner that never reads causes it. */
#define OUTBOX_IS_FULL "the runner does not read"

/* Functions that return text return NULL, or the reason why the slot must end. */

/* Sets the state before the first run: the jailer is running, and there is no zygote. */
void run_init(struct run *run, struct jailer jailer);

/* Changes the state. The only place that does. */
void run_enter(struct run *run, enum run_state state);

/* Records that the jail could not be made, and kills what exists of it. */
void run_fail(struct run *run, const char *why);

/* Records the wait status of the main process. */
void run_take_status(struct run *run, int status);

/* Send the last frame of the run and forget it. */
const char *run_finish_exited(struct run *run, struct outbox *outbox);
const char *run_finish_failed(struct run *run, const char *text, struct outbox *outbox);

/* Handles a frame from the runner. */
const char *run_frame(struct run *run, const struct frame *frame, struct outbox *outbox);

/* In run-events.c: what comes from the jail, its init, the jailer and the zygote. */

/* Fills in the poll set; a descriptor is -1 where nothing is awaited from it. */
void run_watch(const struct run *run, const struct outbox *outbox, struct pollfd watches[RUN_WATCHES]);

/* Handles the descriptors that are ready. */
const char *run_advance(struct run *run, const struct pollfd watches[RUN_WATCHES], struct outbox *outbox);

/* Handles a reaped child of the guest. When it was the jail's init, every process of the jail is dead. */
const char *run_reaped(struct run *run, pid_t pid, int status, struct outbox *outbox);

#endif
