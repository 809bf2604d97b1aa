#include "relay.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "handover.h"

void source_open(struct source *source, size_t code_bytes, size_t stdin_bytes)
{
	*source = (struct source){
		.bytes = handover_source(),
		.size = code_bytes + stdin_bytes,
		.code_bytes = code_bytes,
		.stdin_bytes = stdin_bytes,
	};
}

bool source_add(struct source *source, uint8_t kind, const uint8_t *bytes, size_t length)
{
	bool is_code = kind == FRAME_CODE;
	size_t *filled = is_code ? &source->code_filled : &source->stdin_filled;
	size_t announced = is_code ? source->code_bytes : source->stdin_bytes;
	size_t offset = is_code ? 0 : source->code_bytes;

	/* BOUNDARY: the announced size is what there is room for. */
	if (length > announced - *filled)
		return false;
	if (length > 0)
		memcpy(source->bytes + offset + *filled, bytes, length);
	*filled += length;
	return true;
}

bool source_is_whole(const struct source *source)
{
	return source->code_filled == source->code_bytes && source->stdin_filled == source->stdin_bytes;
}

bool relay_feed(struct source *source, int fd)
{
	while (source->fed < source->size) {
		ssize_t put = write(fd, source->bytes + source->fed, source->size - source->fed);
		if (put < 0 && errno == EINTR)
			continue;
		if (put < 0)
			return errno == EAGAIN;
		source->fed += (size_t)put;
	}
	return false;
}

enum relay_pump relay_pump(int fd, uint8_t kind, uint32_t run, uint64_t *credit, struct outbox *outbox)
{
	if (*credit == 0 || !outbox_has_room(outbox))
		return PUMP_HELD;
	size_t most = *credit < FRAME_OUT_MAX_BYTES ? (size_t)*credit : FRAME_OUT_MAX_BYTES;
	ssize_t got = read(fd, outbox_reserve(outbox), most);
	if (got < 0)
		return errno == EAGAIN || errno == EINTR ? PUMP_EMPTY : PUMP_ENDED;
	if (got == 0)
		return PUMP_ENDED;
	outbox_commit(outbox, kind, run, (uint32_t)got);
	*credit -= (uint64_t)got;
	return PUMP_MOVED;
}

void source_forget(struct source *source)
{
	if (source->size > 0)
		handover_forget_source(source->size);
	*source = (struct source){0};
}
