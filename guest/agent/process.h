/* The processes of a sandbox that were started on request. */
#ifndef GLOVEBOX_AGENT_PROCESS_H
#define GLOVEBOX_AGENT_PROCESS_H

#include <poll.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "../frames.h"
#include "pending.h"
#include "spawn.h"

/* At once, with those that have ended while a descendant still holds their output. */
#define PROCESSES_MAX 512

enum process_state {
	PROCESS_NONE,
	PROCESS_STARTING, /* it has not been executed yet */
	PROCESS_RUNNING,
	PROCESS_ENDED,    /* output of its descendants is read and dropped, so that they can go on */
};

struct process {
	enum process_state state;
	uint32_t number;
	pid_t pid;
	bool is_reaped;
	bool has_terminal;
	int status;
	uint64_t credit;
	uint64_t channel_credit;
	struct spawn_ends ends;
	struct pending input;
	struct pending channel;
};

struct processes {
	struct process list[PROCESSES_MAX];
	size_t used; /* all above are PROCESS_NONE */
};

/* Indexes into the poll set of one process. */
enum process_watch { WATCH_FAILURE, WATCH_INPUT, WATCH_OUTPUT, WATCH_ERRORS, WATCH_CHANNEL, PROCESS_WATCHES };

/* Returns an unused entry, if need be that of an ended process; NULL when all run. */
struct process *processes_add(struct processes *processes);

/* Returns the process that is starting or running; NULL without one. */
struct process *processes_find(struct processes *processes, uint32_t number);

/* Fills in the poll set. Returns the number of its entries. */
size_t processes_watch(const struct processes *processes, bool has_room, struct pollfd *watches);

/* Handles the descriptors that are ready, and ends. Returns false when nothing reads the outbox. */
bool processes_advance(struct processes *processes, const struct pollfd *watches, struct outbox *outbox);

void processes_reaped(struct processes *processes, pid_t pid, int status);

/* Starts it. Returns 0, or -1 with fail_text. */
int process_start(struct process *process, uint32_t number, const struct spawn_request *request,
		  const struct preparation *limits);

/* Handles a frame for it. Returns false when the frame breaks the protocol. */
bool process_take(struct process *process, const struct frame *frame);

#endif
