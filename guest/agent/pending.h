/* Bytes for a process that it has not read yet, within a window that the runner knows. */
#ifndef GLOVEBOX_AGENT_PENDING_H
#define GLOVEBOX_AGENT_PENDING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "../frames.h"

struct pending {
	uint8_t *bytes; /* AGENT_WINDOW_BYTES; NULL until needed */
	size_t start;
	size_t end;
	uint32_t taken; /* written, and not yet granted again */
	bool is_last;   /* the stream is closed after these */
};

/* Adds the payload of a frame. Returns false when it exceeds the window, follows the end, or there is no memory. */
bool pending_keep(struct pending *pending, const struct frame *frame);

/* Writes what the process accepts. Returns false when it does not read any more. */
bool pending_feed(struct pending *pending, int fd);

/* Counts what will not be read as taken, so that its writer does not wait. */
void pending_drop(struct pending *pending);

/* Overwrites and frees. */
void pending_forget(struct pending *pending);

#endif
