#include "frames.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "fail.h"

#define INBOX_BYTES (FRAME_HEADER_BYTES + FRAME_IN_MAX_BYTES)

/* Kept free for frames that are not output: thousands of them, so that only a runner that breaks the order of
 * PROTOCOL.md and never reads can fill it. */
#define OUTBOX_RESERVE_BYTES 65536u
#define OUTBOX_FRAMES 3u
#define OUTBOX_BYTES (OUTBOX_RESERVE_BYTES + OUTBOX_FRAMES * (FRAME_HEADER_BYTES + FRAME_OUT_MAX_BYTES))

/* Buffers that grew beyond this are given back to the kernel between runs. */
#define KEPT_RESIDENT_BYTES 65536u

uint32_t read_u32(const uint8_t *bytes)
{
	return (uint32_t)bytes[0] | (uint32_t)bytes[1] << 8 | (uint32_t)bytes[2] << 16 | (uint32_t)bytes[3] << 24;
}

uint64_t read_u64(const uint8_t *bytes)
{
	return (uint64_t)read_u32(bytes) | (uint64_t)read_u32(bytes + 4) << 32;
}

void write_u32(uint8_t *bytes, uint32_t value)
{
	bytes[0] = (uint8_t)value;
	bytes[1] = (uint8_t)(value >> 8);
	bytes[2] = (uint8_t)(value >> 16);
	bytes[3] = (uint8_t)(value >> 24);
}

static uint8_t *buffer_open(size_t size)
{
	void *bytes = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	return bytes == MAP_FAILED ? NULL : bytes;
}

/* Overwrites [from, dirty); returns the new extent of what is dirty. */
static size_t buffer_forget(uint8_t *bytes, size_t size, size_t from, size_t dirty)
{
	if (dirty > from)
		explicit_bzero(bytes + from, dirty - from);
	if (dirty > KEPT_RESIDENT_BYTES && from == 0)
		madvise(bytes, size, MADV_DONTNEED);
	return from;
}

int inbox_open(struct inbox *inbox)
{
	*inbox = (struct inbox){.bytes = buffer_open(INBOX_BYTES)};
	return inbox->bytes == NULL ? fail("memory for the inbox") : 0;
}

enum inbox_fill inbox_fill(struct inbox *inbox, int fd)
{
	if (inbox->start > 0) {
		memmove(inbox->bytes, inbox->bytes + inbox->start, inbox->end - inbox->start);
		inbox->end -= inbox->start;
		inbox->start = 0;
	}
	ssize_t got = read(fd, inbox->bytes + inbox->end, INBOX_BYTES - inbox->end);
	if (got < 0)
		return errno == EAGAIN || errno == EINTR ? INBOX_LATER : INBOX_END;
	if (got == 0)
		return INBOX_END;
	inbox->end += (size_t)got;
	if (inbox->end > inbox->dirty)
		inbox->dirty = inbox->end;
	return INBOX_DATA;
}

enum inbox_next inbox_next(struct inbox *inbox, struct frame *frame, uint8_t last_kind)
{
	const uint8_t *header = inbox->bytes + inbox->start;
	size_t have = inbox->end - inbox->start;

	if (have < FRAME_HEADER_BYTES)
		return INBOX_MORE;
	uint32_t length = read_u32(header);
	uint8_t kind = header[8];
	if (length > FRAME_IN_MAX_BYTES || kind == 0 || kind > last_kind)
		return INBOX_BAD;
	if (header[9] != 0 || header[10] != 0 || header[11] != 0)
		return INBOX_BAD;
	if (have - FRAME_HEADER_BYTES < length)
		return INBOX_MORE;
	*frame = (struct frame){
		.run = read_u32(header + 4),
		.kind = kind,
		.length = length,
		.payload = header + FRAME_HEADER_BYTES,
	};
	inbox->start += FRAME_HEADER_BYTES + length;
	return INBOX_FRAME;
}

void inbox_forget(struct inbox *inbox)
{
	memmove(inbox->bytes, inbox->bytes + inbox->start, inbox->end - inbox->start);
	inbox->end -= inbox->start;
	inbox->start = 0;
	inbox->dirty = buffer_forget(inbox->bytes, INBOX_BYTES, inbox->end, inbox->dirty);
}

int outbox_open(struct outbox *outbox)
{
	*outbox = (struct outbox){.bytes = buffer_open(OUTBOX_BYTES)};
	return outbox->bytes == NULL ? fail("memory for the outbox") : 0;
}

bool outbox_has_room(const struct outbox *outbox)
{
	size_t waiting = outbox->end - outbox->start;

	return waiting + FRAME_HEADER_BYTES + FRAME_OUT_MAX_BYTES + OUTBOX_RESERVE_BYTES <= OUTBOX_BYTES;
}

static void outbox_compact(struct outbox *outbox)
{
	if (outbox->start == 0)
		return;
	memmove(outbox->bytes, outbox->bytes + outbox->start, outbox->end - outbox->start);
	outbox->end -= outbox->start;
	outbox->start = 0;
}

uint8_t *outbox_reserve(struct outbox *outbox)
{
	if (OUTBOX_BYTES - outbox->end < FRAME_HEADER_BYTES + FRAME_OUT_MAX_BYTES)
		outbox_compact(outbox);
	return outbox->bytes + outbox->end + FRAME_HEADER_BYTES;
}

void outbox_commit(struct outbox *outbox, uint8_t kind, uint32_t run, uint32_t length)
{
	uint8_t *header = outbox->bytes + outbox->end;

	write_u32(header, length);
	write_u32(header + 4, run);
	write_u32(header + 8, kind);
	outbox->end += FRAME_HEADER_BYTES + length;
	if (outbox->end > outbox->dirty)
		outbox->dirty = outbox->end;
}

bool outbox_send(struct outbox *outbox, uint8_t kind, uint32_t run, const void *payload, uint32_t length)
{
	if (OUTBOX_BYTES - outbox->end < FRAME_HEADER_BYTES + length)
		outbox_compact(outbox);
	if (OUTBOX_BYTES - outbox->end < FRAME_HEADER_BYTES + length)
		return false;
	memcpy(outbox->bytes + outbox->end + FRAME_HEADER_BYTES, payload, length);
	outbox_commit(outbox, kind, run, length);
	return true;
}

bool outbox_flush(struct outbox *outbox, int fd)
{
	while (outbox->start < outbox->end) {
		ssize_t put = write(fd, outbox->bytes + outbox->start, outbox->end - outbox->start);
		if (put < 0 && errno == EINTR)
			continue;
		if (put < 0)
			return errno == EAGAIN;
		outbox->start += (size_t)put;
	}
	outbox->start = 0;
	outbox->end = 0;
	return true;
}

void outbox_forget(struct outbox *outbox)
{
	outbox_compact(outbox);
	outbox->dirty = buffer_forget(outbox->bytes, OUTBOX_BYTES, outbox->end, outbox->dirty);
}
