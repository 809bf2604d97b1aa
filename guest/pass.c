#include "pass.h"

#include <errno.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

union control {
	struct cmsghdr header;
	char space[CMSG_SPACE(PASSED_MAX * sizeof(int))];
};

int pass_send(int socket, const void *body, size_t length, const int *passed, size_t count)
{
	union control control = {0};
	struct iovec part = {.iov_base = (void *)(uintptr_t)body, .iov_len = length};
	struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};

	if (count > 0) {
		message.msg_control = &control;
		message.msg_controllen = CMSG_SPACE(count * sizeof(int));
		*CMSG_FIRSTHDR(&message) = (struct cmsghdr){
			.cmsg_level = SOL_SOCKET,
			.cmsg_type = SCM_RIGHTS,
			.cmsg_len = CMSG_LEN(count * sizeof(int)),
		};
		memcpy(CMSG_DATA(CMSG_FIRSTHDR(&message)), passed, count * sizeof(int));
	}
	return sendmsg(socket, &message, MSG_NOSIGNAL) < 0 ? -1 : 0;
}

int pass_receive(int socket, void *body, size_t length, int *passed, size_t most, size_t *count)
{
	union control control = {0};
	struct iovec part = {.iov_base = body, .iov_len = length};
	struct msghdr message = {
		.msg_iov = &part,
		.msg_iovlen = 1,
		.msg_control = &control,
		.msg_controllen = sizeof(control),
	};
	ssize_t got;

	*count = 0;

	do
		got = recvmsg(socket, &message, MSG_CMSG_CLOEXEC);
	while (got < 0 && errno == EINTR);
	if (got < 0)
		return -1;
	struct cmsghdr *header = CMSG_FIRSTHDR(&message);
	if (header != NULL && header->cmsg_level == SOL_SOCKET && header->cmsg_type == SCM_RIGHTS)
		*count = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
	if ((size_t)got == length && *count <= most) {
		if (*count > 0)
			memcpy(passed, CMSG_DATA(header), *count * sizeof(int));
		return 1;
	}
	for (size_t i = 0; i < *count; i++) {
		int unwanted;
		memcpy(&unwanted, CMSG_DATA(header) + i * sizeof(int), sizeof(unwanted));
		close(unwanted);
	}
	errno = EBADMSG;
	return got == 0 ? 0 : -1;
}
