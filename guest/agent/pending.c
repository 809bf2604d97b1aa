#include "pending.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "protocol.h"

bool pending_keep(struct pending *pending, const struct frame *frame)
{
	size_t waiting = pending->end - pending->start;

	if (pending->is_last || frame->length > AGENT_WINDOW_BYTES - waiting - pending->taken)
		return false;
	if (pending->bytes == NULL && (pending->bytes = malloc(AGENT_WINDOW_BYTES)) == NULL)
		return false;
	if (frame->length > AGENT_WINDOW_BYTES - pending->end) {
		memmove(pending->bytes, pending->bytes + pending->start, waiting);
		pending->start = 0;
		pending->end = waiting;
	}
	memcpy(pending->bytes + pending->end, frame->payload, frame->length);
	pending->end += frame->length;
	return true;
}

bool pending_feed(struct pending *pending, int fd)
{
	while (pending->end > pending->start) {
		ssize_t put = write(fd, pending->bytes + pending->start, pending->end - pending->start);
		if (put < 0 && errno == EINTR)
			continue;
		if (put < 0)
			return errno == EAGAIN;
		pending->start += (size_t)put;
		pending->taken += (uint32_t)put;
	}
	pending->start = pending->end = 0;
	return true;
}

void pending_drop(struct pending *pending)
{
	pending->taken += (uint32_t)(pending->end - pending->start);
	pending->start = pending->end = 0;
}

void pending_forget(struct pending *pending)
{
	if (pending->bytes != NULL)
		explicit_bzero(pending->bytes, AGENT_WINDOW_BYTES);
	free(pending->bytes);
	*pending = (struct pending){0};
}
