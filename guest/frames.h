/* Frames as PROTOCOL.md defines them: reading them from the runner, queueing them towards it. */
#ifndef GLOVEBOX_FRAMES_H
#define GLOVEBOX_FRAMES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PROTOCOL_VERSION 3u

#define FRAME_HEADER_BYTES 12u
#define FRAME_IN_MAX_BYTES 1048576u
#define FRAME_OUT_MAX_BYTES 65536u

enum frame_kind {
	FRAME_PREPARE = 1,
	FRAME_CODE = 2,
	FRAME_STDIN = 3,
	FRAME_GO = 4,
	FRAME_CREDIT = 5,
	FRAME_KILL = 6,
	FRAME_BEGIN = 7,
	FRAME_ZYGOTE = 8,
	FRAME_PICTURE_CREDIT = 9,
	FRAME_INPUT = 10,
	FRAME_SPARE = 11,

	FRAME_HELLO = 64,
	FRAME_WAITING = 65,
	FRAME_STDOUT = 66,
	FRAME_STDERR = 67,
	FRAME_EXITED = 68,
	FRAME_FAILED = 69,
	FRAME_FORKER = 70,
	FRAME_ZYGOTE_GONE = 71,
	FRAME_PICTURES = 72,
	FRAME_INPUT_ROOM = 73,
	FRAME_SPARE_READY = 74,
	FRAME_SPARE_GONE = 75,
};

struct frame {
	uint32_t run;
	uint8_t kind;
	uint32_t length;
	const uint8_t *payload; /* inside the inbox: valid until the next inbox_fill */
};

/* What was read and not yet understood. */
struct inbox {
	uint8_t *bytes;
	size_t start;
	size_t end;
	size_t dirty; /* bytes below this were written since the last inbox_forget */
};

enum inbox_fill { INBOX_DATA, INBOX_LATER, INBOX_END };
enum inbox_next { INBOX_FRAME, INBOX_MORE, INBOX_BAD };

/* Returns 0, or -1 with fail_text. */
int inbox_open(struct inbox *inbox);

/* Reads once from a non-blocking descriptor. There is room whenever inbox_next answered INBOX_MORE. */
enum inbox_fill inbox_fill(struct inbox *inbox, int fd);

/* The next whole frame, whose kind is from 1 to `last_kind`. INBOX_BAD: a header that the protocol does not know; the reader is of
 * no use after it. */
enum inbox_next inbox_next(struct inbox *inbox, struct frame *frame, uint8_t last_kind);

/* Overwrites everything that was read and is not waiting to be understood. */
void inbox_forget(struct inbox *inbox);

/* What waits to be written. Bounded: output is only taken from a program while a whole frame of it fits. */
struct outbox {
	uint8_t *bytes;
	size_t start;
	size_t end;
	size_t dirty;
};

/* Returns 0, or -1 with fail_text. */
int outbox_open(struct outbox *outbox);

/* Whether an output frame of FRAME_OUT_MAX_BYTES fits beside what is kept free for the other kinds. */
bool outbox_has_room(const struct outbox *outbox);

/* Where the payload of the next output frame goes. Only after outbox_has_room; followed by outbox_commit. */
uint8_t *outbox_reserve(struct outbox *outbox);

/* Turns `length` bytes written at outbox_reserve's place into a frame. */
void outbox_commit(struct outbox *outbox, uint8_t kind, uint32_t run, uint32_t length);

/* Queues a frame that is not output. Returns false when a reader that never reads has filled even the reserve. */
bool outbox_send(struct outbox *outbox, uint8_t kind, uint32_t run, const void *payload, uint32_t length);

/* Writes as much as a non-blocking descriptor takes. Returns false when the reader is gone. */
bool outbox_flush(struct outbox *outbox, int fd);

static inline bool outbox_is_empty(const struct outbox *outbox)
{
	return outbox->start == outbox->end;
}

/* Overwrites everything that was written and is not waiting to be. */
void outbox_forget(struct outbox *outbox);

uint32_t read_u32(const uint8_t *bytes);
uint64_t read_u64(const uint8_t *bytes);
void write_u32(uint8_t *bytes, uint32_t value);

#endif
