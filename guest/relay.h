/* Copies bytes between frames and the pipes of a program. Never blocks. */
#ifndef GLOVEBOX_RELAY_H
#define GLOVEBOX_RELAY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "frames.h"

/* Source text and standard input of a run, in this order, in the memory of the handover. */
struct source {
	uint8_t *bytes;
	size_t size; /* of both together */
	size_t code_bytes;
	size_t stdin_bytes;
	size_t code_filled;
	size_t stdin_filled;
	size_t fed; /* bytes that were written to the program, or need not be */
};

/* Starts receiving: at most SOURCE_MAX_BYTES of each. */
void source_open(struct source *source, size_t code_bytes, size_t stdin_bytes);

/* Adds the payload of a CODE or STDIN frame. Returns false when it is more than was announced. */
bool source_add(struct source *source, uint8_t kind, const uint8_t *bytes, size_t length);

bool source_is_whole(const struct source *source);

/* Writes as much as the pipe accepts. Returns false when everything is written or the pipe has no reader: close it then. */
bool relay_feed(struct source *source, int fd);

enum relay_pump {
	PUMP_MOVED,
	PUMP_EMPTY, /* nothing there now */
	PUMP_HELD,  /* no credit, or no room before the reader has read */
	PUMP_ENDED, /* the last writer is gone */
};

/* Turns output into one frame of this kind, as far as credit and room reach. */
enum relay_pump relay_pump(int fd, uint8_t kind, uint32_t run, uint64_t *credit, struct outbox *outbox);

/* Overwrites. Harmless when there is nothing. */
void source_forget(struct source *source);

#endif
