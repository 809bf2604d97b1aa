#include "run.h"

#include <signal.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/wait.h>

#include "handover.h"

enum how { HOW_EXITED = 0, HOW_SIGNALED = 1, HOW_KILLED = 2 };

static const char outbox_is_full[] = "the reader does not read";

/* Nothing of a run may stay, here or in what the jailer shares. */
static void forget(struct run *run)
{
	jail_close(&run->jail.channel);
	jail_close(&run->jail.in);
	jail_close(&run->jail.out);
	jail_close(&run->jail.err);
	source_forget(&run->source);
	prepare_forget(&run->preparation);
	handover_forget();
	explicit_bzero(run->failure, sizeof(run->failure));
	*run = (struct run){
		.state = RUN_NONE,
		.number = run->number,
		.awaits_go = run->awaits_go,
		.jail = {-1, -1, -1, -1, -1},
		.jailer = run->jailer,
	};
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
	return sent ? NULL : outbox_is_full;
}

static const char *finish_failed(struct run *run, const char *text, struct outbox *outbox)
{
	bool sent = outbox_send(outbox, FRAME_FAILED, run->number, text, (uint32_t)strlen(text));

	forget(run);
	return sent ? NULL : outbox_is_full;
}

static const char *start(struct run *run, struct outbox *outbox)
{
	if (!source_is_whole(&run->source))
		return NULL;
	/* A file's text is not fed to standard input as well. */
	if (run->preparation.code_file != NULL)
		run->source.fed = run->source.code_bytes;
	struct ends ends;
	if (jail_open(&run->jail, &ends, &run->preparation) < 0)
		return finish_failed(run, fail_text(), outbox);
	int asked = jailer_ask(&run->jailer, &ends);
	jail_close_ends(&ends);
	if (asked < 0)
		return finish_failed(run, fail_text(), outbox);
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
	*run = (struct run){
		.state = RUN_RECEIVING,
		.number = frame->run,
		.credit = run->preparation.credit,
		.preparation = run->preparation,
		.jail = {-1, -1, -1, -1, -1},
		.jailer = run->jailer,
	};
	handover_keep(frame->payload, frame->length);
	source_open(&run->source, run->preparation.code_bytes, run->preparation.stdin_bytes);
	return start(run, outbox);
}

static const char *receive(struct run *run, const struct frame *frame, struct outbox *outbox)
{
	if (run->state != RUN_RECEIVING || frame->run != run->number)
		return "CODE or STDIN out of order";
	if (!source_add(&run->source, frame->kind, frame->payload, frame->length))
		return "more CODE or STDIN than announced";
	return start(run, outbox);
}

static const char *go(struct run *run, const struct frame *frame)
{
	if (frame->run != run->number || frame->length != 0 || !run->awaits_go)
		return "GO out of order";
	run->awaits_go = false;
	if (run->state != RUN_WAITING)
		return NULL; /* crossed the end of the run */
	run->state = RUN_RUNNING;
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
	run->credit += read_u32(frame->payload);
	return run->credit > QUANTITY_MAX ? "more CREDIT than can be counted" : NULL;
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
	case FRAME_CREDIT: return credit(run, frame);
	case FRAME_KILL: return kill_run(run, frame, outbox);
	default: return "a kind of frame that is not known";
	}
}

void run_watch(const struct run *run, const struct outbox *outbox, struct pollfd watches[RUN_WATCHES])
{
	/* A descriptor that must not be read now is left out: poll would report its end again and again. */
	bool may_pump = run->credit > 0 && outbox_has_room(outbox);

	watches[WATCH_JAILER] = (struct pollfd){.fd = run->jailer.socket, .events = POLLIN};
	watches[WATCH_CHANNEL] = (struct pollfd){.fd = run->jail.channel, .events = POLLIN};
	watches[WATCH_IN] = (struct pollfd){.fd = run->jail.in, .events = POLLOUT};
	watches[WATCH_OUT] = (struct pollfd){.fd = may_pump ? run->jail.out : -1, .events = POLLIN};
	watches[WATCH_ERR] = (struct pollfd){.fd = may_pump ? run->jail.err : -1, .events = POLLIN};
}

static const char *take_reports(struct run *run, struct outbox *outbox)
{
	struct report report;
	uint8_t pid[4];
	int more;

	while ((more = jail_report(&run->jail, &report)) > 0) {
		if (report.kind == REPORT_READY && run->state == RUN_STARTING) {
			run->state = RUN_WAITING;
			run->awaits_go = true;
			write_u32(pid, (uint32_t)report.value);
			if (!outbox_send(outbox, FRAME_WAITING, run->number, pid, sizeof(pid)))
				return outbox_is_full;
		} else if (report.kind == REPORT_STATUS) {
			run->has_status = true;
			run->status = report.value;
		} else if (report.kind == REPORT_FAILED) {
			run->has_failed = true;
			memcpy(run->failure, report.text, sizeof(run->failure));
		}
	}
	if (more < 0)
		jail_close(&run->jail.channel);
	return NULL;
}

static void pump(struct run *run, int *fd, uint8_t kind, struct outbox *outbox)
{
	if (*fd >= 0 && relay_pump(*fd, kind, run->number, &run->credit, outbox) == PUMP_ENDED)
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
	while (run->credit > 0 && outbox_has_room(outbox) && !(is_empty(run->jail.out) && is_empty(run->jail.err))) {
		pump(run, &run->jail.out, FRAME_STDOUT, outbox);
		pump(run, &run->jail.err, FRAME_STDERR, outbox);
	}
	if (is_empty(run->jail.out) && is_empty(run->jail.err))
		return finish_exited(run, outbox);
	return run->discards && run->credit == 0 ? finish_exited(run, outbox) : NULL;
}

/* The jail's init has a number now, by which it can be killed; it may even be dead and reaped. */
static const char *take_init(struct run *run, pid_t init, struct outbox *outbox)
{
	run->jail.init = init;
	if (run->unknown == init)
		return run_reaped(run, init, outbox);
	if (run->killed)
		jail_kill(&run->jail);
	return NULL;
}

static const char *take_answer(struct run *run, struct outbox *outbox)
{
	char text[FAIL_TEXT_BYTES];
	pid_t init;

	switch (jailer_answer(&run->jailer, &init, text)) {
	case JAILER_LATER: return NULL;
	case JAILER_GONE:
		/* A run that goes on may end: its init is our child. */
		run->jailer.is_gone = true;
		jail_close(&run->jailer.socket);
		return run->awaits_jailer ? "the jailer died" : NULL;
	case JAILER_FAILED:
		if (!run->awaits_jailer)
			return "the jailer answered what nobody asked";
		return run->killed ? finish_exited(run, outbox) : finish_failed(run, text, outbox);
	case JAILER_DONE:
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
	if (run->jailer.is_gone && run->state == RUN_NONE)
		return "the jailer died";
	if (run->state == RUN_DRAINING)
		return drain(run, outbox);
	if (watches[WATCH_CHANNEL].revents != 0 && run->jail.channel >= 0) {
		const char *wrong = take_reports(run, outbox);
		if (wrong != NULL)
			return wrong;
	}
	if (watches[WATCH_IN].revents != 0 && run->jail.in >= 0 && !relay_feed(&run->source, run->jail.in))
		jail_close(&run->jail.in);
	if (watches[WATCH_OUT].revents != 0)
		pump(run, &run->jail.out, FRAME_STDOUT, outbox);
	if (watches[WATCH_ERR].revents != 0)
		pump(run, &run->jail.err, FRAME_STDERR, outbox);
	return NULL;
}

const char *run_reaped(struct run *run, pid_t pid, struct outbox *outbox)
{
	if (run->awaits_jailer && pid != run->jailer.pid)
		run->unknown = pid;
	if (run->jail.init < 0 || pid != run->jail.init)
		return NULL;
	run->jail.init = -1;
	const char *wrong = run->jail.channel >= 0 ? take_reports(run, outbox) : NULL;
	if (wrong != NULL)
		return wrong;
	jail_close(&run->jail.channel);
	jail_close(&run->jail.in);
	if (run->has_failed && !run->killed)
		return finish_failed(run, run->failure, outbox);
	if (run->state == RUN_STARTING && !run->killed)
		return finish_failed(run, "the jail's init died while it made the jail", outbox);
	run->state = RUN_DRAINING;
	return drain(run, outbox);
}
