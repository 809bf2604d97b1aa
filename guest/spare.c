#include "spare.h"

#include <signal.h>
#include <string.h>

static const char *report_gone(const char *why, struct outbox *outbox)
{
	return outbox_send(outbox, FRAME_SPARE_GONE, 0, why, (uint32_t)strlen(why)) ? NULL : OUTBOX_IS_FULL;
}

const char *spare_start(struct run *run, const struct frame *frame, struct outbox *outbox)
{
	struct preparation asked;

	if (frame->run != 0 || run->number != 0 || run->spare.pid != 0)
		return "SPARE out of order";
	const char *error = prepare_parse_zygote(&asked, frame->payload, frame->length);
	if (error != NULL)
		return error;
	if (zygote_start(&run->spare, &asked, true) < 0) {
		run->spare.pid = -1;
		error = report_gone(fail_text(), outbox);
	}
	prepare_forget(&asked);
	return error;
}

void spare_join(struct run *run)
{
	/* A request that cannot be sent means that it is dead. */
	if (run->spare.socket >= 0)
		zygote_join_sandbox(&run->spare, &run->preparation, run->jail.passed);
	for (size_t i = 0; i < JAIL_PASSED; i++)
		jail_close(&run->jail.passed[i]);
}

void spare_end(struct run *run)
{
	if (run->spare.pid > 0)
		kill(run->spare.pid, SIGKILL);
}

const char *spare_take(struct run *run, struct outbox *outbox)
{
	struct zygote_report report = {.word = ZYGOTE_FAILED, .text = "it ended"};
	uint8_t pid[4];

	if (run->spare.socket < 0)
		return NULL;
	int more = zygote_report(&run->spare, &report);
	if (more == 0)
		return NULL;
	if (more < 0 || report.word != ZYGOTE_READY) {
		jail_close(&run->spare.socket);
		return report_gone(report.text, outbox);
	}
	write_u32(pid, (uint32_t)run->spare.pid);
	return outbox_send(outbox, FRAME_SPARE_READY, 0, pid, sizeof(pid)) ? NULL : OUTBOX_IS_FULL;
}
