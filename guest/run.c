#include "run.h"

#include <signal.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/wait.h>

#include "prewarm.h"
#include "handover.h"

enum how { HOW_EXITED = 0, HOW_SIGNALED = 1, HOW_KILLED = 2 };

void run_none(struct run *run, struct jailer jailer)
{
	*run = (struct run){
		.jail = JAIL_NONE,
		.ends = ENDS_NONE,
		.jailer = jailer,
		.host = {.pid = 0, .socket = -1},
	};
}

/* What stays when a run ends, and when one begins. */
static struct run next_run(const struct run *run)
{
	return (struct run){
		.state = RUN_NONE,
		.number = run->number,
		.awaits_go = run->awaits_go,
		.late_answers = run->late_answers + (run->awaits_storage ? 1 : 0),
		.jail = JAIL_NONE,
		.ends = ENDS_NONE,
		.jailer = run->jailer,
		.host = run->host,
	};
}

/* Nothing of a run may stay, here or in what the jailer shares. */
static void forget(struct run *run)
{
	bool was_ahead = run->preparation.ahead != AHEAD_NOT;

	jail_forget(&run->jail);
	jail_close_ends(&run->ends);
	source_forget(&run->source);
	prepare_forget(&run->preparation);
	handover_forget();
	explicit_bzero(run->failure, sizeof(run->failure));
	*run = next_run(run);
	run->was_ahead = was_ahead;
}

static const char *finish_exited(struct run *run, struct outbox *outbox)
{
	uint8_t payload[5] = {HOW_KILLED};

	if (run->has_status && WIFEXITED(run->status)) {
		payload[0] = HOW_EXITED;
		write_u32(payload + 1, (uint32_t)WEXITSTATUS(run->status));
	} else if (run->has_status && WIFSIGNALED(run->status)) {
		payload[0] = HOW_SIGNALED;
		write_u32(payload + 1, (uint32_t)WTERMSIG(run->status));
	}
	bool sent = outbox_send(outbox, FRAME_EXITED, run->number, payload, sizeof(payload));
	forget(run);
	return sent ? NULL : OUTBOX_IS_FULL;
}

static const char *finish_failed(struct run *run, const char *text, struct outbox *outbox)
{
	bool sent = outbox_send(outbox, FRAME_FAILED, run->number, text, (uint32_t)strlen(text));

	forget(run);
	return sent ? NULL : OUTBOX_IS_FULL;
}

static const char *start(struct run *run, struct outbox *outbox)
{
	if (!source_is_whole(&run->source))
		return NULL;
	/* A file's text is not fed to standard input as well. */
	if (run->preparation.code_file != NULL)
		run->source.fed = run->source.code_bytes;
	run->fed = run->preparation.ahead == AHEAD_NOT;
	if (jail_open(&run->jail, &run->ends, &run->preparation) < 0 || jailer_ask(&run->jailer, &run->ends) < 0)
		return finish_failed(run, fail_text(), outbox);
	if (run->preparation.ahead != AHEAD_JOINED)
		jail_close_ends(&run->ends);
	run->state = RUN_STARTING;
	run->awaits_jailer = true;
	return NULL;
}

static const char *prepare(struct run *run, const struct frame *frame, struct outbox *outbox)
{
	if (run->state != RUN_NONE)
		return "PREPARE before the end of the run before";
	if (frame->run == 0 || (run->number != 0 && frame->run != run->number + 1))
		return "PREPARE with a wrong run number";
	const char *wrong = prepare_parse(&run->preparation, frame->payload, frame->length);
	if (wrong != NULL)
		return wrong;
	struct preparation preparation = run->preparation;
	*run = next_run(run);
	run->state = RUN_RECEIVING;
	run->number = frame->run;
	run->awaits_go = false;
	run->credit = preparation.credit;
	run->image_credit = preparation.image_credit;
	run->preparation = preparation;
	handover_keep(frame->payload, frame->length);
	source_open(&run->source, run->preparation.code_bytes, run->preparation.stdin_bytes);
	return start(run, outbox);
}

static const char *receive(struct run *run, const struct frame *frame, struct outbox *outbox)
{
	bool may = run->state == RUN_RECEIVING || (run->begun && !run->fed);

	/* A jail that was made ahead may have died before its run came. */
	if (run->was_ahead && run->state == RUN_NONE && frame->run == run->number)
		return NULL;
	if (!may || frame->run != run->number)
		return "CODE or STDIN out of order";
	if (!source_add(&run->source, frame->kind, frame->payload, frame->length))
		return "more CODE or STDIN than announced";
	return run->begun ? ahead_hand_over(run) : start(run, outbox);
}

static const char *go(struct run *run, const struct frame *frame)
{
	if (frame->run != run->number || frame->length != 0 || !run->awaits_go)
		return "GO out of order";
	run->awaits_go = false;
	if (run->state != RUN_WAITING)
		return NULL; /* crossed the end of the run */
	run->state = RUN_RUNNING;
	if (run->preparation.ahead != AHEAD_JOINED)
		jail_go(&run->jail); /* if it is dead, its end is on the way here */
	return NULL;
}

/* Whether the frame speaks of this run or of one before it, which it may have crossed. */
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
	uint64_t *of = frame->kind == FRAME_CREDIT ? &run->credit : &run->image_credit;
	*of += read_u32(frame->payload);
	return *of > QUANTITY_MAX ? "more CREDIT than can be counted" : NULL;
}

static const char *kill_run(struct run *run, const struct frame *frame, struct outbox *outbox)
{
	if (frame->length != 0 || !is_known(run, frame->run))
		return "KILL out of order";
	if (frame->run != run->number || run->state == RUN_NONE)
		return NULL;
	run->killed = true;
	if (run->state == RUN_RECEIVING)
		return finish_exited(run, outbox);
	if (run->state == RUN_DRAINING)
		run->discards = true;
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
	case FRAME_IMAGE_CREDIT: return credit(run, frame);
	case FRAME_KILL: return kill_run(run, frame, outbox);
	case FRAME_BEGIN: return ahead_begin(run, frame);
	case FRAME_HOST: return ahead_start_host(run, frame);
	default: return "a kind of frame that is not known";
	}
}

void run_watch(const struct run *run, const struct outbox *outbox, struct pollfd watches[RUN_WATCHES])
{
	/* A descriptor that must not be read now is left out: poll would report its end again and again. */
	bool has_room = outbox_has_room(outbox);
	bool may_pump = run->credit > 0 && has_room;
	bool may_pump_images = run->image_credit > 0 && has_room;

	watches[WATCH_JAILER] = (struct pollfd){.fd = run->jailer.socket, .events = POLLIN};
	watches[WATCH_HOST] = (struct pollfd){.fd = run->host.socket, .events = POLLIN};
	watches[WATCH_CHANNEL] = (struct pollfd){.fd = run->jail.channel, .events = POLLIN};
	watches[WATCH_TALK] = (struct pollfd){.fd = run->jail.talk, .events = POLLIN};
	watches[WATCH_IN] = (struct pollfd){.fd = run->fed ? run->jail.in : -1, .events = POLLOUT};
	watches[WATCH_OUT] = (struct pollfd){.fd = may_pump ? run->jail.out : -1, .events = POLLIN};
	watches[WATCH_ERR] = (struct pollfd){.fd = may_pump ? run->jail.err : -1, .events = POLLIN};
	watches[WATCH_IMAGES] = (struct pollfd){.fd = may_pump_images ? run->jail.images : -1, .events = POLLIN};
}

static const char *wait_for_go(struct run *run, pid_t main, struct outbox *outbox)
{
	uint8_t pid[4];

	run->state = RUN_WAITING;
	run->awaits_go = true;
	run->awaits_host = false;
	run->jail.main = main;
	for (size_t i = 0; i < JAIL_NAMESPACES; i++)
		if (i != JAIL_MNT)
			jail_close(&run->jail.spaces[i]);
	write_u32(pid, (uint32_t)main);
	return outbox_send(outbox, FRAME_WAITING, run->number, pid, sizeof(pid)) ? NULL : OUTBOX_IS_FULL;
}

static const char *take_report(struct run *run, const struct report *report, struct outbox *outbox)
{
	if (report->kind == REPORT_READY && run->state == RUN_STARTING)
		return wait_for_go(run, report->value, outbox);
	if (report->kind == REPORT_MADE && run->state == RUN_STARTING && run->preparation.ahead == AHEAD_JOINED)
		return ahead_join(run);
	if (report->kind == REPORT_STATUS)
		ahead_take_status(run, report->value);
	if (report->kind == REPORT_FAILED) {
		run->has_failed = true;
		memcpy(run->failure, report->text, sizeof(run->failure));
		if (run->preparation.ahead == AHEAD_JOINED)
			jail_kill(&run->jail);
	}
	return NULL;
}

static const char *take_reports(struct run *run, int *from, struct outbox *outbox)
{
	struct report report;
	int more = -1;

	while (*from >= 0 && (more = jail_report(&run->jail, *from, &report)) > 0) {
		const char *wrong = take_report(run, &report, outbox);
		if (wrong != NULL)
			return wrong;
	}
	if (more < 0)
		jail_close(from);
	return NULL;
}

static void pump(struct run *run, int *fd, uint8_t kind, struct outbox *outbox)
{
	uint64_t *credit = kind == FRAME_IMAGES ? &run->image_credit : &run->credit;

	if (*fd >= 0 && relay_pump(*fd, kind, run->number, credit, outbox) == PUMP_ENDED)
		jail_close(fd);
}

static bool is_empty(int fd)
{
	int waiting = 0;

	return fd < 0 || ioctl(fd, FIONREAD, &waiting) < 0 || waiting == 0;
}

/* Every process is dead, so what the pipes hold now is all. Their end of file is not waited for: a descriptor that
 * was on its way between two dead processes keeps a pipe open until the kernel collects it. */
static const char *drain(struct run *run, struct outbox *outbox)
{
	const struct jail *jail = &run->jail;

	while (run->credit > 0 && outbox_has_room(outbox) && !(is_empty(jail->out) && is_empty(jail->err))) {
		pump(run, &run->jail.out, FRAME_STDOUT, outbox);
		pump(run, &run->jail.err, FRAME_STDERR, outbox);
	}
	while (run->image_credit > 0 && outbox_has_room(outbox) && !is_empty(jail->images))
		pump(run, &run->jail.images, FRAME_IMAGES, outbox);
	bool has_text = !is_empty(jail->out) || !is_empty(jail->err);
	bool has_images = !is_empty(jail->images);
	if (!has_text && !has_images)
		return finish_exited(run, outbox);
	bool finds_none = (!has_text || run->credit == 0) && (!has_images || run->image_credit == 0);
	return run->discards && finds_none ? finish_exited(run, outbox) : NULL;
}

/* The jail's init has a number now, by which it can be killed; it may even be dead and reaped. */
static const char *take_init(struct run *run, pid_t init, struct outbox *outbox)
{
	run->jail.init = init;
	if (run->unknown == init)
		return run_reaped(run, init, 0, outbox);
	if (run->killed)
		jail_kill(&run->jail);
	return NULL;
}

static const char *take_answer(struct run *run, struct outbox *outbox)
{
	static char text[FAIL_TEXT_BYTES]; /* outlives the call where it is what is wrong */
	pid_t init;

	enum jailer_answer answer = jailer_answer(&run->jailer, &init, text);
	if (run->late_answers > 0 && (answer == JAILER_DONE || answer == JAILER_FAILED)) {
		run->late_answers--;
		return NULL;
	}
	switch (answer) {
	case JAILER_LATER: return NULL;
	case JAILER_GONE:
		/* A run that goes on may end: its init is our child. */
		run->jailer.is_gone = true;
		jail_close(&run->jailer.socket);
		return run->awaits_jailer ? "the jailer died" : NULL;
	case JAILER_FAILED:
		if (!run->awaits_jailer && !run->awaits_storage)
			return "the jailer answered what nobody asked";
		if (run->awaits_storage)
			return text;
		return run->killed ? finish_exited(run, outbox) : finish_failed(run, text, outbox);
	case JAILER_DONE:
		if (run->awaits_storage) {
			run->awaits_storage = false;
			run->has_storage = true;
			return ahead_hand_over(run);
		}
		if (!run->awaits_jailer)
			return "the jailer answered what nobody asked";
		run->awaits_jailer = false;
		return take_init(run, init, outbox);
	}
	return NULL;
}

const char *run_advance(struct run *run, const struct pollfd watches[RUN_WATCHES], struct outbox *outbox)
{
	if (watches[WATCH_JAILER].revents != 0 && run->jailer.socket >= 0) {
		const char *wrong = take_answer(run, outbox);
		if (wrong != NULL)
			return wrong;
	}
	if (watches[WATCH_HOST].revents != 0) {
		const char *wrong = ahead_take_host(run, outbox);
		if (wrong != NULL)
			return wrong;
	}
	if (run->jailer.is_gone && run->state == RUN_NONE)
		return "the jailer died";
	if (run->state == RUN_DRAINING)
		return drain(run, outbox);
	if (watches[WATCH_CHANNEL].revents != 0 && run->jail.channel >= 0) {
		const char *wrong = take_reports(run, &run->jail.channel, outbox);
		if (wrong != NULL)
			return wrong;
	}
	if (watches[WATCH_TALK].revents != 0 && run->jail.talk >= 0) {
		const char *wrong = take_reports(run, &run->jail.talk, outbox);
		if (wrong != NULL)
			return wrong;
	}
	if (watches[WATCH_IN].revents != 0 && run->jail.in >= 0 && !relay_feed(&run->source, run->jail.in))
		jail_close(&run->jail.in);
	if (watches[WATCH_OUT].revents != 0)
		pump(run, &run->jail.out, FRAME_STDOUT, outbox);
	if (watches[WATCH_ERR].revents != 0)
		pump(run, &run->jail.err, FRAME_STDERR, outbox);
	if (watches[WATCH_IMAGES].revents != 0)
		pump(run, &run->jail.images, FRAME_IMAGES, outbox);
	return NULL;
}

const char *run_reaped(struct run *run, pid_t pid, int status, struct outbox *outbox)
{
	if (run->awaits_jailer && pid != run->jailer.pid && pid != run->host.pid)
		run->unknown = pid;
	/* The host died before it; so it became our child. */
	if (run->jail.main > 0 && pid == run->jail.main)
		ahead_take_status(run, status);
	if (run->jail.init < 0 || pid != run->jail.init)
		return NULL;
	run->jail.init = -1;
	const char *wrong = take_reports(run, &run->jail.channel, outbox);
	if (wrong == NULL)
		wrong = take_reports(run, &run->jail.talk, outbox);
	if (wrong == NULL)
		wrong = ahead_take_host(run, outbox);
	if (wrong != NULL)
		return wrong;
	jail_close(&run->jail.channel);
	jail_close(&run->jail.talk);
	jail_close(&run->jail.in);
	if (run->has_failed && !run->killed)
		return finish_failed(run, run->failure, outbox);
	if (run->state == RUN_STARTING && !run->killed)
		return finish_failed(run, "the jail's init died while it made the jail", outbox);
	run->state = RUN_DRAINING;
	return drain(run, outbox);
}
