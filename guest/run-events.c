#include "run.h"

#include <string.h>
#include <sys/ioctl.h>

#include "prewarm.h"
#include "spare.h"

/* The source text of a prewarmed jail is held back until its storage is attached. */
static bool may_feed(const struct run *run)
{
	return run->preparation.prewarm == PREWARM_NONE || run->state == RUN_RUNNING;
}

void run_watch(const struct run *run, const struct outbox *outbox, struct pollfd watches[RUN_WATCHES])
{
	/* A descriptor that must not be read now is left out: poll would report its end again and again. */
	bool has_room = outbox_has_room(outbox);
	bool may_pump = run->credit > 0 && has_room;
	bool may_pump_pictures = run->picture_credit > 0 && has_room;
	const struct jail *jail = &run->jail;

	watches[WATCH_JAILER] = (struct pollfd){.fd = run->jailer.socket, .events = POLLIN};
	watches[WATCH_ZYGOTE] = (struct pollfd){.fd = run->zygote.socket, .events = POLLIN};
	watches[WATCH_SPARE] = (struct pollfd){.fd = run->spare.socket, .events = POLLIN};
	/* The init may report before the jailer answers; its report is read once its pid is known. */
	watches[WATCH_CHANNEL] = (struct pollfd){.fd = run->state == RUN_AWAITS_JAILER ? -1 : jail->channel, .events = POLLIN};
	watches[WATCH_CONTROL] = (struct pollfd){.fd = jail->control_fd, .events = POLLIN};
	bool may_write = run->preparation.root_disk == NULL ? may_feed(run) : run->input.waiting > 0;
	watches[WATCH_IN] = (struct pollfd){.fd = may_write ? jail->in : -1, .events = POLLOUT};
	watches[WATCH_OUT] = (struct pollfd){.fd = may_pump ? jail->out : -1, .events = POLLIN};
	watches[WATCH_ERR] = (struct pollfd){.fd = may_pump ? jail->err : -1, .events = POLLIN};
	watches[WATCH_PICTURES] = (struct pollfd){.fd = may_pump_pictures ? jail->pictures : -1, .events = POLLIN};
}

static const char *wait_for_go(struct run *run, pid_t main, struct outbox *outbox)
{
	uint8_t pid[4];

	run_enter(run, RUN_AWAITS_GO);
	run->jail.main = main;
	for (size_t i = 0; i < JAIL_NAMESPACES; i++)
		if (i != JAIL_MNT)
			jail_close(&run->jail.passed[i]);
	write_u32(pid, (uint32_t)main);
	return outbox_send(outbox, FRAME_WAITING, run->number, pid, sizeof(pid)) ? NULL : OUTBOX_IS_FULL;
}

static const char *take_report(struct run *run, const struct report *report, struct outbox *outbox)
{
	bool is_forked = run->preparation.prewarm == PREWARM_FORK;

	if (report->kind == REPORT_READY && run->state == (is_forked ? RUN_AWAITS_ZYGOTE : RUN_AWAITS_INIT))
		return wait_for_go(run, report->value, outbox);
	if (report->kind == REPORT_MADE && run->state == RUN_AWAITS_INIT && is_forked)
		prewarm_join(run);
	if (report->kind == REPORT_MADE && run->preparation.takes_spare)
		spare_join(run);
	if (report->kind == REPORT_STATUS)
		run_take_status(run, report->value);
	if (report->kind == REPORT_FAILED) {
		run->outcome = OUTCOME_FAILED;
		memcpy(run->failure, report->text, sizeof(run->failure));
		if (is_forked)
			jail_kill(&run->jail);
	}
	return NULL;
}

static const char *take_reports(struct run *run, int *from, struct outbox *outbox)
{
	struct report report;
	int more = -1;

	while (*from >= 0 && (more = jail_report(&run->jail, *from, &report)) > 0) {
		const char *error = take_report(run, &report, outbox);
		if (error != NULL)
			return error;
	}
	if (more < 0)
		jail_close(from);
	return NULL;
}

static void pump(struct run *run, int *fd, uint8_t kind, struct outbox *outbox)
{
	uint64_t *credit = kind == FRAME_PICTURES ? &run->picture_credit : &run->credit;

	if (*fd >= 0 && relay_pump(*fd, kind, run->number, credit, outbox) == PUMP_ENDED)
		jail_close(fd);
}

/* Credit for input is given back in units, so that small messages cost one frame together. */
#define INPUT_ROOM_UNIT_BYTES (INPUT_WINDOW_BYTES / 4)

static const char *feed(struct run *run, struct outbox *outbox)
{
	uint8_t bytes[4];

	if (run->preparation.root_disk == NULL) {
		if (!relay_feed(&run->source, run->jail.in))
			jail_close(&run->jail.in);
		return NULL;
	}
	if (!input_feed(&run->input, run->jail.in))
		jail_close(&run->jail.in); /* its end is about to be reaped */
	if (run->input.taken < INPUT_ROOM_UNIT_BYTES)
		return NULL;
	write_u32(bytes, run->input.taken);
	run->input.taken = 0;
	return outbox_send(outbox, FRAME_INPUT_ROOM, run->number, bytes, sizeof(bytes)) ? NULL : OUTBOX_IS_FULL;
}

static bool is_empty(int fd)
{
	int waiting = 0;

	return fd < 0 || ioctl(fd, FIONREAD, &waiting) < 0 || waiting == 0;
}

/* Every process is dead, so the pipes hold all remaining output. Their end of file is not awaited: a descriptor that was
 * in transit between two dead processes keeps a pipe open until the kernel collects it. */
static const char *drain(struct run *run, struct outbox *outbox)
{
	const struct jail *jail = &run->jail;

	while (run->credit > 0 && outbox_has_room(outbox) && !(is_empty(jail->out) && is_empty(jail->err))) {
		pump(run, &run->jail.out, FRAME_STDOUT, outbox);
		pump(run, &run->jail.err, FRAME_STDERR, outbox);
	}
	while (run->picture_credit > 0 && outbox_has_room(outbox) && !is_empty(jail->pictures))
		pump(run, &run->jail.pictures, FRAME_PICTURES, outbox);
	bool has_text = !is_empty(jail->out) || !is_empty(jail->err);
	bool has_pictures = !is_empty(jail->pictures);
	if (!has_text && !has_pictures)
		return run_finish_exited(run, outbox);
	bool lacks_credit = (!has_text || run->credit == 0) && (!has_pictures || run->picture_credit == 0);
	return run->state == RUN_DISCARDING && lacks_credit ? run_finish_exited(run, outbox) : NULL;
}

static const char *take_answer(struct run *run, struct outbox *outbox)
{
	static char text[FAIL_TEXT_BYTES]; /* static, since it may be returned as the error */
	pid_t init;

	enum jailer_answer answer = jailer_answer(&run->jailer, &init, text);
	bool awaits_jailer = run->state == RUN_AWAITS_JAILER || run->state == RUN_AWAITS_STORAGE;
	if (answer == JAILER_LATER)
		return NULL;
	if (answer == JAILER_GONE) {
		/* A run in progress may still end: its init is a child of the guest. */
		run->jailer.is_gone = true;
		jail_close(&run->jailer.socket);
		return awaits_jailer ? "the jailer died" : NULL;
	}
	if (run->late.answers > 0) {
		run->late.answers--;
		return NULL;
	}
	if (!awaits_jailer)
		return "an answer of the jailer that was not requested";
	if (run->state == RUN_AWAITS_STORAGE) {
		if (answer == JAILER_FAILED)
			return text;
		run_enter(run, RUN_AWAITS_REQUEST);
		prewarm_hand_over(run);
		return NULL;
	}
	if (answer == JAILER_FAILED)
		return run->is_killed ? run_finish_exited(run, outbox) : run_finish_failed(run, text, outbox);
	run_enter(run, RUN_AWAITS_INIT);
	run->jail.init = init;
	if (run->reaped == init)
		return run_reaped(run, init, 0, outbox);
	if (run->is_killed)
		jail_kill(&run->jail);
	return NULL;
}

const char *run_advance(struct run *run, const struct pollfd watches[RUN_WATCHES], struct outbox *outbox)
{
	const char *error = NULL;
	struct jail *jail = &run->jail;

	if (watches[WATCH_JAILER].revents != 0 && run->jailer.socket >= 0)
		error = take_answer(run, outbox);
	if (error == NULL && watches[WATCH_ZYGOTE].revents != 0)
		error = prewarm_take_zygote(run, outbox);
	if (error == NULL && watches[WATCH_SPARE].revents != 0)
		error = spare_take(run, outbox);
	if (error == NULL && run->jailer.is_gone && run->state == RUN_NONE)
		error = "the jailer died";
	if (error != NULL)
		return error;
	if (run->state == RUN_DRAINING || run->state == RUN_DISCARDING)
		return drain(run, outbox);
	if (watches[WATCH_CHANNEL].revents != 0 && jail->channel >= 0)
		error = take_reports(run, &jail->channel, outbox);
	if (error == NULL && watches[WATCH_CONTROL].revents != 0 && jail->control_fd >= 0)
		error = take_reports(run, &jail->control_fd, outbox);
	if (error != NULL)
		return error;
	if (watches[WATCH_IN].revents != 0 && jail->in >= 0)
		error = feed(run, outbox);
	if (error != NULL)
		return error;
	if (watches[WATCH_OUT].revents != 0)
		pump(run, &jail->out, FRAME_STDOUT, outbox);
	if (watches[WATCH_ERR].revents != 0)
		pump(run, &jail->err, FRAME_STDERR, outbox);
	if (watches[WATCH_PICTURES].revents != 0)
		pump(run, &jail->pictures, FRAME_PICTURES, outbox);
	return NULL;
}

const char *run_reaped(struct run *run, pid_t pid, int status, struct outbox *outbox)
{
	if (pid == run->spare.pid) {
		run->spare.pid = -1;
		return NULL;
	}
	if (run->state == RUN_AWAITS_JAILER && pid != run->jailer.pid && pid != run->zygote.pid)
		run->reaped = pid;
	/* The zygote died before its child, which so became a child of the guest. */
	if (run->jail.main > 0 && pid == run->jail.main)
		run_take_status(run, status);
	if (run->jail.init < 0 || pid != run->jail.init)
		return NULL;
	run->jail.init = -1;
	const char *error = take_reports(run, &run->jail.channel, outbox);
	if (error == NULL)
		error = take_reports(run, &run->jail.control_fd, outbox);
	if (error == NULL)
		error = prewarm_take_zygote(run, outbox);
	if (error != NULL)
		return error;
	jail_close(&run->jail.channel);
	jail_close(&run->jail.control_fd);
	jail_close(&run->jail.in);
	if (run->outcome == OUTCOME_FAILED && !run->is_killed)
		return run_finish_failed(run, run->failure, outbox);
	if ((run->state == RUN_AWAITS_INIT || run->state == RUN_AWAITS_ZYGOTE) && !run->is_killed)
		return run_finish_failed(run, "the jail's init died while it made the jail", outbox);
	run_enter(run, RUN_DRAINING);
	return drain(run, outbox);
}
