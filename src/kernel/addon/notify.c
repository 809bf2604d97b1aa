/* Messages to the service manager that started the process. */
#define _GNU_SOURCE
#include "job.h"

#include <errno.h>
#include <stddef.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

/* sendDatagram(path, message): sends one datagram to a UNIX socket. A path that begins with @ is an abstract address:
 * https://www.freedesktop.org/software/systemd/man/latest/sd_notify.html */
static void send_datagram(struct job *job)
{
	const char *path = job->text[0], *message = job->text[1];
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	size_t length = strlen(path);
	int file;

	if (length == 0 || length >= sizeof(address.sun_path)) {
		errno = ENAMETOOLONG;
		job_fail(job, "connect");
		return;
	}
	memcpy(address.sun_path, path, length);
	if (address.sun_path[0] == '@')
		address.sun_path[0] = 0;
	file = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (file < 0) {
		job_fail(job, "socket");
		return;
	}
	if (sendto(file, message, strlen(message), MSG_NOSIGNAL, (struct sockaddr *)&address,
		   (socklen_t)(offsetof(struct sockaddr_un, sun_path) + length)) < 0)
		job_fail(job, "sendto");
	close(file);
}

const struct operation notify_operations[] = {
	{"sendDatagram", "tt", RESULT_NONE, send_datagram},
	{NULL, NULL, RESULT_NONE, NULL},
};
