/* One run from its PREPARE to its EXITED or FAILED: the order of PROTOCOL.md, as a state. */
#ifndef GLOVEBOX_RUN_H
#define GLOVEBOX_RUN_H

#include <poll.h>
#include <stdbool.h>
#include <stdint.h>

#include "frames.h"
#include "zygote.h"
#include "jail.h"
#include "jailer.h"
#include "prepare.h"
#include "relay.h"

enum run_state {
	RUN_NONE,      /* nothing; `number` is the last run's */
	RUN_RECEIVING, /* CODE and STDIN are arriving */
	RUN_STARTING,  /* the jail is being made */
	RUN_WAITING,   /* WAITING was sent */
	RUN_RUNNING,   /* GO has come */
	RUN_DRAINING,  /* every process is dead; output remains to be sent */
};

struct run {
	enum run_state state;
	uint32_t number; /* 0: there was no run yet */
	bool killed;
	bool awaits_go;   /* WAITING was sent and no GO has come: also after the end, which GO may cross */
	bool discards;    /* KILL came while draining: what finds no credit is dropped */
	bool has_status;
	bool has_failed;
	bool awaits_jailer; /* it was asked for this run's jail */
	bool awaits_host;   /* it was asked to fork the main process */
	bool was_ahead;     /* the last one was made ahead; its request may cross its end */
	bool awaits_storage; /* the jailer was asked to attach it */
	unsigned late_answers; /* of the jailer, to runs that have ended */
	bool has_storage;
	bool begun;         /* BEGIN has come: a jail made ahead has its run */
	bool fed;           /* what the program reads may be written */
	pid_t unknown;      /* a child that was reaped while the number of the jail's init was not known; 0: none */
	int status; /* wait status of the main process */
	uint64_t credit;
	uint64_t image_credit;
	size_t env_bytes; /* in front of the source text, of a jail that was joined */
	struct preparation preparation;
	struct source source;
	struct jail jail;
	struct ends ends;     /* of a jail that is to be joined, until it is */
	struct jailer jailer; /* of the slot: outlives the runs */
	struct host host;     /* likewise */
	char failure[FAIL_TEXT_BYTES];
};

/* Places in the poll set. */
enum run_watch { WATCH_JAILER, WATCH_HOST, WATCH_CHANNEL, WATCH_TALK, WATCH_IN, WATCH_OUT, WATCH_ERR, WATCH_IMAGES, RUN_WATCHES };

/* What is wrong when a frame that is not output finds no room: only a reader that never reads comes to that. */
#define OUTBOX_IS_FULL "the reader does not read"

/* Each function that returns text: NULL, or what is wrong; then the slot is to end. */

/* Acts on a frame. */
const char *run_frame(struct run *run, const struct frame *frame, struct outbox *outbox);

/* Fills in what the run waits for now; -1 as descriptor where there is nothing to wait for. */
void run_watch(const struct run *run, const struct outbox *outbox, struct pollfd watches[RUN_WATCHES]);

/* Does what became possible. */
const char *run_advance(struct run *run, const struct pollfd watches[RUN_WATCHES], struct outbox *outbox);

/* A child of the guest is gone, and with it, if it was the jail's init, every process of the jail. */
const char *run_reaped(struct run *run, pid_t pid, int status, struct outbox *outbox);

/* A slot before its first run. The jailer lives; there is no host. */
void run_none(struct run *run, struct jailer jailer);

#endif
