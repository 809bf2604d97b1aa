/* The data that the next jail is made from, in memory shared by the guest and the jailer, so that none of it is copied. */
#ifndef GLOVEBOX_HANDOVER_H
#define GLOVEBOX_HANDOVER_H

#include <stddef.h>
#include <stdint.h>

/* Maps the memory, before the jailer is forked. Returns 0, or -1 with fail_text. */
int handover_open(void);

/* Stores the payload of a PREPARE frame: at most FRAME_IN_MAX_BYTES. */
void handover_keep(const uint8_t *payload, size_t length);

/* Returns the payload stored last. */
const uint8_t *handover_payload(size_t *length);

/* Returns the memory for source text and standard input: SOURCE_MAX_BYTES for each, and a
 * frame of variables. */
uint8_t *handover_source(void);

/* Overwrite the data, and return large amounts of memory to the kernel. */
void handover_forget(void);
void handover_forget_source(size_t length);

/* In the init of a jail: unmaps the memory. */
void handover_close(void);

#endif
