#include "prewarm.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

/* The whole request of a jail that was made ahead has come. */
const char *ahead_hand_over(struct run *run)
{
	const struct join_request request = {
		.env_bytes = (uint32_t)run->env_bytes,
		.code_bytes = (uint32_t)(run->source.size - run->env_bytes),
		.has_storage = run->has_storage,
	};

	if (!source_is_whole(&run->source) || run->awaits_storage)
		return NULL;
	run->fed = true;
	if (run->preparation.ahead == AHEAD_JOINED && jail_tell(&run->jail, request) < 0)
		jail_kill(&run->jail); /* it is dead already: its end is on the way here */
	return NULL;
}

/* Variables come before the source text, each with its NUL. */
static bool add_variables(struct run *run, char *const *variables)
{
	for (; *variables != NULL; variables++)
		if (!source_add(&run->source, FRAME_CODE, (const uint8_t *)*variables, strlen(*variables) + 1))
			return false;
	return true;
}

static size_t bytes_of(char *const *variables)
{
	size_t bytes = 0;

	for (; *variables != NULL; variables++)
		bytes += strlen(*variables) + 1;
	return bytes;
}

/* That it cannot be asked shows that the jail, or the jailer, is dead; an end is on the way here. */
static void ask_for_storage(struct run *run, const char *dock, const char *volumes)
{
	int mounts = run->jail.spaces[JAIL_MNT];

	run->awaits_storage = true;
	if (mounts < 0 || jailer_attach(&run->jailer, mounts, dock, volumes, run->preparation.home) < 0)
		jail_kill(&run->jail);
	jail_close(&run->jail.spaces[JAIL_MNT]);
}

const char *ahead_begin(struct run *run, const struct frame *frame)
{
	struct preparation asked;

	if (run->was_ahead && run->state == RUN_NONE && frame->run == run->number)
		return NULL; /* crossed the end of the jail */
	if (frame->run != run->number || run->preparation.ahead == AHEAD_NOT || run->begun ||
	    (run->state != RUN_RUNNING && run->state != RUN_DRAINING))
		return "BEGIN out of order";
	const char *wrong = prepare_parse_begin(&asked, frame->payload, frame->length);
	if (wrong != NULL)
		return wrong;
	run->begun = true;
	run->env_bytes = bytes_of(asked.env);
	source_open(&run->source, run->env_bytes + asked.code_bytes, 0);
	bool has_storage = asked.dock != NULL || asked.volumes != NULL;
	if (run->env_bytes > 0 && run->preparation.ahead == AHEAD_STARTED)
		wrong = "variables for a program that is started already";
	else if (!add_variables(run, asked.env))
		wrong = "variables that do not fit";
	else if (has_storage)
		ask_for_storage(run, asked.dock, asked.volumes);
	prepare_forget(&asked);
	return wrong != NULL ? wrong : ahead_hand_over(run);
}

const char *ahead_start_host(struct run *run, const struct frame *frame)
{
	struct preparation asked;

	if (frame->run != 0 || run->host.pid != 0)
		return "HOST out of order";
	const char *wrong = prepare_parse_host(&asked, frame->payload, frame->length);
	if (wrong != NULL)
		return wrong;
	wrong = host_start(&run->host, &asked) < 0 ? fail_text() : NULL;
	prepare_forget(&asked);
	return wrong;
}

/* The jail is there, and a host's child is to join it. */
const char *ahead_join(struct run *run)
{
	const struct jail *jail = &run->jail;
	int theirs = -1;

	if (run->host.socket < 0) {
		errno = ESRCH;
		fail("ask the host");
	} else if (jail_open_talk(&run->jail, &theirs) == 0) {
		const int passed[JOIN_DESCRIPTORS] = {
			run->ends.in, run->ends.out, run->ends.err, run->ends.images, theirs,
			jail->spaces[JAIL_PID], jail->spaces[JAIL_MNT], jail->spaces[JAIL_NET], jail->spaces[JAIL_IPC],
			jail->spaces[JAIL_UTS],
		};
		run->awaits_host = host_join(&run->host, &run->preparation, passed) == 0;
	}
	jail_close(&theirs);
	jail_close_ends(&run->ends);
	if (run->awaits_host)
		return NULL;
	run->has_failed = true;
	memcpy(run->failure, fail_text(), sizeof(run->failure));
	jail_kill(&run->jail);
	return NULL;
}

/* A jail that was joined has an init that waits for nobody. */
void ahead_take_status(struct run *run, int status)
{
	run->has_status = true;
	run->status = status;
	if (run->preparation.ahead == AHEAD_JOINED)
		jail_kill(&run->jail);
}

/* The host is gone for good. Its child lives on as ours, if it had forked it; a jail that waits for one is lost. */
static const char *lose_host(struct run *run, const char *why, struct outbox *outbox)
{
	jail_close(&run->host.socket);
	if (run->awaits_host) {
		run->awaits_host = false;
		run->has_failed = true;
		snprintf(run->failure, sizeof(run->failure), "the host died: %s", why);
		jail_kill(&run->jail);
	}
	return outbox_send(outbox, FRAME_HOST_GONE, 0, why, (uint32_t)strlen(why)) ? NULL : OUTBOX_IS_FULL;
}

static const char *take_host_report(struct run *run, const struct host_report *report, struct outbox *outbox)
{
	uint8_t pid[4];

	switch (report->word) {
	case HOST_READY:
		if (host_is_alone(&run->host) < 0) {
			kill(run->host.pid, SIGKILL);
			return lose_host(run, fail_text(), outbox);
		}
		write_u32(pid, (uint32_t)run->host.pid);
		return outbox_send(outbox, FRAME_FORKER, 0, pid, sizeof(pid)) ? NULL : OUTBOX_IS_FULL;
	case HOST_FORKED:
		if (run->awaits_host)
			run->jail.main = report->pid;
		return NULL;
	case HOST_STATUS:
		if (report->pid == run->jail.main && !run->has_status)
			ahead_take_status(run, report->status);
		return NULL;
	default: return lose_host(run, report->text, outbox);
	}
}

const char *ahead_take_host(struct run *run, struct outbox *outbox)
{
	struct host_report report;
	const char *wrong = NULL;
	int more = 0;

	while (wrong == NULL && run->host.socket >= 0 && (more = host_report(&run->host, &report)) > 0)
		wrong = take_host_report(run, &report, outbox);
	return wrong == NULL && run->host.socket >= 0 && more < 0 ? lose_host(run, "it ended", outbox) : wrong;
}
