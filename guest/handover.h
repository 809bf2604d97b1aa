/* What the next jail is made from, in memory that the guest and its jailer share: nothing is copied between them. */
#ifndef GLOVEBOX_HANDOVER_H
#define GLOVEBOX_HANDOVER_H

#include <stddef.h>
#include <stdint.h>

/* Maps the memory, before the jailer is forked. Returns 0, or -1 with fail_text. */
int handover_open(void);

/* Keeps the payload of a PREPARE frame, which is at most FRAME_IN_MAX_BYTES long. */
void handover_keep(const uint8_t *payload, size_t length);

/* The payload kept last. */
const uint8_t *handover_payload(size_t *length);

/* Where source text and standard input go: room for SOURCE_MAX_BYTES of each. */
uint8_t *handover_source(void);

/* Overwrite what was kept, and give memory back to the kernel where it was much. */
void handover_forget(void);
void handover_forget_source(size_t length);

/* In a jail's init: the mapping ends. */
void handover_close(void);

#endif
