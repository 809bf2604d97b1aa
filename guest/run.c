#include "run.h"

#include <signal.h>
#include <string.h>
#include <sys/wait.h>

#include "handover.h"
#include "prewarm.h"
#include "spare.h"

enum how { HOW_EXITED = 0, HOW_SIGNALED = 1, HOW_KILLED = 2 };

void run_init(struct run *run, struct jailer jailer)
{
	*run = (struct run){
		.jail = JAIL_NONE,
		.child_fds = CHILD_FDS_NONE,
		.jailer = jailer,
		.zygote = {.pid = 0, .socket = -1},
		.spare = {.pid = 0, .socket = -1},
	};
}

void run_enter(struct run *run, enum run_state state)
{
	bool is_over = state == RUN_NONE || state == RUN_DRAINING || state == RUN_DISCARDING;

	if (is_over && run->state == RUN_AWAITS_GO)
		run->late.go = true;
	if (is_over && run->state == RUN_AWAITS_STORAGE)
		run->late.answers++;
	if (is_over && run->preparation.prewarm != PREWARM_NONE)
		run->late.request = true;
	run->state = state;
}

/* Resets everything but what outlives a run. */
static void run_reset(struct run *run)
{
	struct run next = {
		.state = RUN_NONE,
		.number = run->number,
		.jail = JAIL_NONE,
		.child_fds = CHILD_FDS_NONE,
		.jailer = run->jailer,
		.zygote = run->zygote,
		.spare = run->spare,
	};

	next.late = run->late;
	*run = next;
}

/* Overwrites the data of a run, here and in the memory shared with the jailer. */
static void forget(struct run *run)
{
	run_enter(run, RUN_NONE);
	jail_forget(&run->jail);
	child_fds_close(&run->child_fds);
	source_forget(&run->source);
	input_forget(&run->input);
	prepare_forget(&run->preparation);
	handover_forget();
	explicit_bzero(run->failure, sizeof(run->failure));
	run_reset(run);
}

void run_fail(struct run *run, const char *why)
{
	run->outcome = OUTCOME_FAILED;
	strncpy(run->failure, why, sizeof(run->failure) - 1);
	jail_kill(&run->jail);
}

/* The init of a jail that was forked into does not wait for the main process, so the guest ends the jail. */
void run_take_status(struct run *run, int status)
{
	if (run->outcome == OUTCOME_UNKNOWN) {
		run->outcome = OUTCOME_STATUS;
		run->status = status;
	}
	if (run->preparation.prewarm == PREWARM_FORK)
		jail_kill(&run->jail);
}

const char *run_finish_exited(struct run *run, struct outbox *outbox)
{
	uint8_t payload[5] = {HOW_KILLED};

	if (run->outcome == OUTCOME_STATUS && WIFEXITED(run->status)) {
		payload[0] = HOW_EXITED;
		write_u32(payload + 1, (uint32_t)WEXITSTATUS(run->status));
	} else if (run->outcome == OUTCOME_STATUS && WIFSIGNALED(run->status)) {
		payload[0] = HOW_SIGNALED;
		write_u32(payload + 1, (uint32_t)WTERMSIG(run->status));
	}
	bool sent = outbox_send(outbox, FRAME_EXITED, run->number, payload, sizeof(payload));
	forget(run);
	return sent ? NULL : OUTBOX_IS_FULL;
}

const char *run_finish_failed(struct run *run, const char *text, struct outbox *outbox)
{
	bool sent = outbox_send(outbox, FRAME_FAILED, run->number, text, (uint32_t)strlen(text));

	forget(run);
	return sent ? NULL : OUTBOX_IS_FULL;
}

/* Requests the jail once all source text and standard input have arrived. */
static const char *start(struct run *run, struct outbox *outbox)
{
	if (!source_is_whole(&run->source))
		return NULL;
	/* The text of a file is not written to standard input as well. */
	if (run->preparation.code_file != NULL)
		run->source.fed = run->source.code_bytes;
	if (jail_open(&run->jail, &run->child_fds, &run->preparation) < 0 ||
	    jailer_ask(&run->jailer, &run->child_fds) < 0)
		return run_finish_failed(run, fail_text(), outbox);
	if (run->preparation.prewarm != PREWARM_FORK)
		child_fds_close(&run->child_fds);
	run_enter(run, RUN_AWAITS_JAILER);
	return NULL;
}

static const char *prepare(struct run *run, const struct frame *frame, struct outbox *outbox)
{
	struct preparation preparation;

	if (run->state != RUN_NONE)
		return "PREPARE before the end of the previous run";
	if (frame->run == 0 || (run->number != 0 && frame->run != run->number + 1))
		return "PREPARE with a wrong run number";
	const char *error = prepare_parse(&preparation, frame->payload, frame->length);
	if (error != NULL)
		return error;
	run_reset(run);
	run->number = frame->run;
	run->late.go = false;
	run->late.request = false;
	run->credit = preparation.credit;
	run->picture_credit = preparation.picture_credit;
	run->preparation = preparation;
	run_enter(run, RUN_AWAITS_SOURCE);
	handover_keep(frame->payload, frame->length);
	source_open(&run->source, run->preparation.code_bytes, run->preparation.stdin_bytes);
	if (!run->preparation.takes_spare)
		spare_end(run);
	return start(run, outbox);
}

static const char *receive(struct run *run, const struct frame *frame, struct outbox *outbox)
{
	bool is_prewarmed = run->state == RUN_AWAITS_STORAGE || run->state == RUN_AWAITS_REQUEST;

	if (frame->run == run->number && run->late.request)
		return NULL;
	if (frame->run != run->number || (run->state != RUN_AWAITS_SOURCE && !is_prewarmed))
		return "CODE or STDIN out of order";
	if (!source_add(&run->source, frame->kind, frame->payload, frame->length))
		return "more CODE or STDIN than announced";
	if (is_prewarmed) {
		prewarm_hand_over(run);
		return NULL;
	}
	return start(run, outbox);
}

static const char *go(struct run *run, const struct frame *frame)
{
	bool is_awaited = run->state == RUN_AWAITS_GO;

	if (frame->run != run->number || frame->length != 0 || (!is_awaited && !run->late.go))
		return "GO out of order";
	run->late.go = false;
	if (!is_awaited)
		return NULL;
	run_enter(run, run->preparation.prewarm == PREWARM_NONE ? RUN_RUNNING : RUN_AWAITS_BEGIN);
	if (run->preparation.prewarm != PREWARM_FORK)
		jail_go(&run->jail); /* when it is dead, its end is about to be reaped */
	return NULL;
}

/* Whether the frame belongs to this run or to an earlier one, whose end it may have crossed. */
static bool is_known(const struct run *run, uint32_t number)
{
	return number != 0 && run->number != 0 && run->number - number < UINT32_MAX / 2;
}

static const char *credit(struct run *run, const struct frame *frame)
{
	if (frame->length != 4 || !is_known(run, frame->run))
		return "CREDIT out of order";
	if (frame->run != run->number || run->state == RUN_NONE)
		return NULL;
	uint64_t *of = frame->kind == FRAME_CREDIT ? &run->credit : &run->picture_credit;
	*of += read_u32(frame->payload);
	return *of > QUANTITY_MAX ? "more CREDIT than can be counted" : NULL;
}

/* The agent of a sandbox reads as long as it lives; what crosses its end is dropped. */
static const char *take_input(struct run *run, const struct frame *frame)
{
	bool is_over = run->state == RUN_NONE || run->state == RUN_DRAINING || run->state == RUN_DISCARDING;

	if (!is_known(run, frame->run))
		return "INPUT out of order";
	if (frame->run != run->number || is_over)
		return NULL;
	if (run->preparation.root_disk == NULL || run->state != RUN_RUNNING)
		return "INPUT for what is no running sandbox";
	return input_add(&run->input, frame->payload, frame->length) ? NULL : "more INPUT than the window holds";
}

static const char *kill_run(struct run *run, const struct frame *frame, struct outbox *outbox)
{
	if (frame->length != 0 || !is_known(run, frame->run))
		return "KILL out of order";
	if (frame->run != run->number || run->state == RUN_NONE)
		return NULL;
	run->is_killed = true;
	if (run->state == RUN_AWAITS_SOURCE)
		return run_finish_exited(run, outbox);
	if (run->state == RUN_DRAINING)
		run_enter(run, RUN_DISCARDING);
	else
		jail_kill(&run->jail);
	return NULL;
}

const char *run_frame(struct run *run, const struct frame *frame, struct outbox *outbox)
{
	switch (frame->kind) {
	case FRAME_PREPARE: return prepare(run, frame, outbox);
	case FRAME_CODE:
	case FRAME_STDIN: return receive(run, frame, outbox);
	case FRAME_GO: return go(run, frame);
	case FRAME_CREDIT:
	case FRAME_PICTURE_CREDIT: return credit(run, frame);
	case FRAME_INPUT: return take_input(run, frame);
	case FRAME_KILL: return kill_run(run, frame, outbox);
	case FRAME_BEGIN: return prewarm_begin(run, frame);
	case FRAME_ZYGOTE: return prewarm_start_zygote(run, frame);
	case FRAME_SPARE: return spare_start(run, frame, outbox);
	default: return "unknown kind of frame";
	}
}
