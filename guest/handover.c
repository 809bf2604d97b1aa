#include "handover.h"

#include <string.h>
#include <sys/mman.h>

#include "fail.h"
#include "frames.h"
#include "prepare.h"

/* Source text, standard input, and the variables of a prewarmed jail, which come in one frame. */
#define SOURCES_BYTES (2 * (size_t)SOURCE_MAX_BYTES + FRAME_IN_MAX_BYTES)

/* Of source text and payloads, what stays resident between runs. */
#define KEPT_RESIDENT_BYTES 65536u

/* What can be given back begins on a page. */
struct handover {
	uint8_t source[SOURCES_BYTES];
	uint8_t payload[FRAME_IN_MAX_BYTES];
	size_t payload_bytes;
};

static struct handover *handover;

int handover_open(void)
{
	void *memory = mmap(NULL, sizeof(*handover), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	if (memory == MAP_FAILED)
		return fail("memory for the handover");
	handover = memory;
	return 0;
}

void handover_keep(const uint8_t *payload, size_t length)
{
	memcpy(handover->payload, payload, length);
	handover->payload_bytes = length;
}

const uint8_t *handover_payload(size_t *length)
{
	*length = handover->payload_bytes;
	return handover->payload;
}

uint8_t *handover_source(void)
{
	return handover->source;
}

void handover_forget(void)
{
	explicit_bzero(handover->payload, handover->payload_bytes);
	if (handover->payload_bytes > KEPT_RESIDENT_BYTES)
		madvise(handover->payload, sizeof(handover->payload), MADV_REMOVE);
	handover->payload_bytes = 0;
}

void handover_forget_source(size_t length)
{
	explicit_bzero(handover->source, length);
	if (length > KEPT_RESIDENT_BYTES)
		madvise(handover->source, sizeof(handover->source), MADV_REMOVE);
}

void handover_close(void)
{
	munmap(handover, sizeof(*handover));
	handover = NULL;
}
