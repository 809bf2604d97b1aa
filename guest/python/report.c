#include "report.h"

#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "../zygote-protocol.h"

void report_send(uint8_t word, int32_t pid, int32_t status)
{
	const struct zygote_report report = {.word = word, .pid = pid, .status = status};

	send(ZYGOTE_SOCKET, &report, sizeof(report), MSG_NOSIGNAL);
}

_Noreturn void report_failure(const char *why)
{
	struct zygote_report report = {.word = ZYGOTE_FAILED};

	strncpy(report.text, why, sizeof(report.text) - 1);
	send(ZYGOTE_SOCKET, &report, sizeof(report), MSG_NOSIGNAL);
	_exit(EXIT_ZYGOTE_FAILED);
}
