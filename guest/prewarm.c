#include "prewarm.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "code-file.h"

static bool awaits_newline(const struct run *run)
{
	return run->preparation.prewarm == PREWARM_EXEC && run->preparation.code_file != NULL;
}

/* Of a jail with CODE_FILE, standard input does not carry the source text as well. */
static void write_code(struct run *run)
{
	struct source *source = &run->source;
	int code = run->jail.passed[JAIL_CODE];

	if (code < 0)
		return;
	run->jail.passed[JAIL_CODE] = -1;
	source->fed = source->code_bytes;
	if (code_file_write(code, source->bytes, source->code_bytes) < 0)
		jail_kill(&run->jail);
}

void prewarm_hand_over(struct run *run)
{
	if (!source_is_whole(&run->source) || run->state != RUN_AWAITS_REQUEST)
		return;
	write_code(run);
	run_enter(run, RUN_RUNNING);
	if (run->preparation.prewarm == PREWARM_FORK && jail_send_request(&run->jail, run->request) < 0)
		jail_kill(&run->jail); /* it is dead, and its end is about to be reaped */
}

/* What precedes the standard input of the program: to a fork, the variables, each with its NUL; to a started program, a
 * newline that says that CODE_FILE is written. */
static bool add_preamble(struct run *run, char *const *variables)
{
	for (; *variables != NULL; variables++)
		if (!source_add(&run->source, FRAME_STDIN, (const uint8_t *)*variables, strlen(*variables) + 1))
			return false;
	return !awaits_newline(run) || source_add(&run->source, FRAME_STDIN, (const uint8_t *)"\n", 1);
}

static size_t bytes_of(char *const *variables)
{
	size_t bytes = 0;

	for (; *variables != NULL; variables++)
		bytes += strlen(*variables) + 1;
	return bytes;
}

/* A request that cannot be sent means that the jail or the jailer is dead; its end is about to be reaped. */
static void request_storage(struct run *run, const char *dock, const char *volumes)
{
	int mounts = run->jail.passed[JAIL_MNT];

	run_enter(run, RUN_AWAITS_STORAGE);
	if (mounts < 0 || jailer_attach(&run->jailer, mounts, dock, volumes, run->preparation.home) < 0)
		jail_kill(&run->jail);
	jail_close(&run->jail.passed[JAIL_MNT]);
}

const char *prewarm_begin(struct run *run, const struct frame *frame)
{
	struct preparation asked;

	if (frame->run == run->number && run->late.request)
		return NULL;
	if (frame->run != run->number || run->state != RUN_AWAITS_BEGIN)
		return "BEGIN out of order";
	const char *error = prepare_parse_begin(&asked, frame->payload, frame->length);
	if (error != NULL)
		return error;
	bool has_storage = asked.dock != NULL || asked.volumes != NULL;
	size_t env_bytes = bytes_of(asked.env);
	run->request = (struct run_request){
		.env_bytes = (uint32_t)env_bytes,
		.has_storage = has_storage,
	};
	source_open(&run->source, asked.code_bytes, env_bytes + awaits_newline(run) + asked.stdin_bytes);
	if (env_bytes > 0 && run->preparation.prewarm == PREWARM_EXEC)
		error = "variables for a program that is already started";
	else if (!add_preamble(run, asked.env))
		error = "variables that do not fit";
	else if (has_storage)
		request_storage(run, asked.dock, asked.volumes);
	else
		run_enter(run, RUN_AWAITS_REQUEST);
	prepare_forget(&asked);
	if (error == NULL)
		prewarm_hand_over(run);
	return error;
}

const char *prewarm_start_zygote(struct run *run, const struct frame *frame)
{
	struct preparation asked;

	if (frame->run != 0 || run->zygote.pid != 0)
		return "ZYGOTE out of order";
	const char *error = prepare_parse_zygote(&asked, frame->payload, frame->length);
	if (error != NULL)
		return error;
	error = zygote_start(&run->zygote, &asked, false) < 0 ? fail_text() : NULL;
	prepare_forget(&asked);
	return error;
}

void prewarm_join(struct run *run)
{
	const struct jail *jail = &run->jail;
	const struct child_fds *child_fds = &run->child_fds;
	bool is_requested = false;
	int theirs = -1;

	if (run->zygote.socket < 0) {
		errno = ESRCH;
		fail("ask the zygote");
	} else if (jail_open_control(&run->jail, &theirs) == 0) {
		const int passed[JOIN_DESCRIPTORS] = {
			[JOIN_IN] = child_fds->in,
			[JOIN_OUT] = child_fds->out,
			[JOIN_ERR] = child_fds->err,
			[JOIN_PICTURES] = child_fds->pictures,
			[JOIN_CONTROL] = theirs,
			[JOIN_PID] = jail->passed[JAIL_PID],
			[JOIN_MNT] = jail->passed[JAIL_MNT],
			[JOIN_NET] = jail->passed[JAIL_NET],
			[JOIN_IPC] = jail->passed[JAIL_IPC],
			[JOIN_UTS] = jail->passed[JAIL_UTS],
		};
		is_requested = zygote_join(&run->zygote, &run->preparation, passed) == 0;
	}
	jail_close(&theirs);
	child_fds_close(&run->child_fds);
	if (is_requested)
		run_enter(run, RUN_AWAITS_ZYGOTE);
	else
		run_fail(run, fail_text());
}

/* The zygote is gone. A child that it had forked becomes a child of the guest and lives on; a jail that waits for one
 * cannot be used. */
static const char *lose_zygote(struct run *run, const char *why, struct outbox *outbox)
{
	char text[FAIL_TEXT_BYTES];

	jail_close(&run->zygote.socket);
	if (run->state == RUN_AWAITS_ZYGOTE) {
		snprintf(text, sizeof(text), "the zygote died: %.200s", why);
		run_fail(run, text);
	}
	return outbox_send(outbox, FRAME_ZYGOTE_GONE, 0, why, (uint32_t)strlen(why)) ? NULL : OUTBOX_IS_FULL;
}

static const char *take_report(struct run *run, const struct zygote_report *report, struct outbox *outbox)
{
	uint8_t pid[4];

	switch (report->word) {
	case ZYGOTE_READY:
		if (zygote_is_single_threaded(&run->zygote) < 0) {
			kill(run->zygote.pid, SIGKILL);
			return lose_zygote(run, fail_text(), outbox);
		}
		write_u32(pid, (uint32_t)run->zygote.pid);
		return outbox_send(outbox, FRAME_FORKER, 0, pid, sizeof(pid)) ? NULL : OUTBOX_IS_FULL;
	case ZYGOTE_FORKED:
		if (run->state == RUN_AWAITS_ZYGOTE)
			run->jail.main = report->pid;
		return NULL;
	case ZYGOTE_STATUS:
		if (report->pid == run->jail.main)
			run_take_status(run, report->status);
		return NULL;
	default: return lose_zygote(run, report->text, outbox);
	}
}

const char *prewarm_take_zygote(struct run *run, struct outbox *outbox)
{
	struct zygote_report report;
	const char *error = NULL;
	int more = 0;

	while (error == NULL && run->zygote.socket >= 0 && (more = zygote_report(&run->zygote, &report)) > 0)
		error = take_report(run, &report, outbox);
	return error == NULL && run->zygote.socket >= 0 && more < 0 ? lose_zygote(run, "it ended", outbox) : error;
}
