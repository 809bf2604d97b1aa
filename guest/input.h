/* The standard input of the agent of a sandbox: it lasts as long as the run, and is controlled by credit. */
#ifndef GLOVEBOX_INPUT_H
#define GLOVEBOX_INPUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Bytes that the runner may send before it learns that the agent took them. */
#define INPUT_WINDOW_BYTES 262144u

/* What was received and not yet written. Zero-initialized: empty, without memory. */
struct input {
	uint8_t *bytes; /* INPUT_WINDOW_BYTES; NULL until it is needed */
	size_t start;
	size_t waiting;
	uint32_t taken; /* bytes that were written and not yet granted again */
};

/* Adds bytes. Returns false when they exceed the window, or there is no memory. */
bool input_add(struct input *input, const uint8_t *bytes, size_t length);

/* Writes as much as the pipe accepts. Returns false when the pipe has no reader. */
bool input_feed(struct input *input, int fd);

/* Overwrites and frees. */
void input_forget(struct input *input);

#endif
