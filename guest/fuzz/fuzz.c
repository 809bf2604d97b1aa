/* Hostile bytes against what reads them: the frame reader, the PREPARE parser and the SPAWN parser of the agent of a
 * sandbox, under sanitizers.
 *
 * Starts from well-formed streams, which it first proves to be understood whole, then spends its time on mutations of
 * them, cut into pieces at random places as a socket would. The same seed gives the same sequence.
 *
 * usage: guest-fuzz SECONDS [SEED] */
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "agent/request.h"
#include "frames.h"
#include "prepare.h"

#define STREAM_MAX_BYTES 4096u
#define FRAMES_PER_STREAM 6u

struct stream {
	uint8_t bytes[STREAM_MAX_BYTES];
	size_t length;
};

struct tally {
	uint64_t streams;
	uint64_t frames;
	uint64_t refused_streams;
	uint64_t prepared;
	uint64_t refused_preparations;
	uint64_t spawned;
	uint64_t refused_spawns;
};

static uint64_t state;

/* xorshift64*: https://vigna.di.unimi.it/ftp/papers/xorshift.pdf */
static uint32_t random_below(uint32_t bound)
{
	state ^= state >> 12;
	state ^= state << 25;
	state ^= state >> 27;
	return (uint32_t)((state * UINT64_C(2685821657736338717)) >> 33) % bound;
}

static void demand(int condition, const char *what)
{
	if (condition)
		return;
	fprintf(stderr, "guest-fuzz: broken: %s\n", what);
	abort();
}

static void put(struct stream *stream, const void *bytes, size_t length)
{
	demand(stream->length + length <= STREAM_MAX_BYTES, "the harness's own stream is too long");
	memcpy(stream->bytes + stream->length, bytes, length);
	stream->length += length;
}

static void put_u32(struct stream *stream, uint32_t value)
{
	uint8_t bytes[4];

	write_u32(bytes, value);
	put(stream, bytes, sizeof(bytes));
}

static void put_record(struct stream *stream, uint8_t tag, const void *value, uint32_t length)
{
	put(stream, &tag, 1);
	put_u32(stream, length);
	put(stream, value, length);
}

static void put_text(struct stream *stream, uint8_t tag, const char *text)
{
	put_record(stream, tag, text, (uint32_t)strlen(text));
}

static void put_quantity(struct stream *stream, uint8_t tag, uint32_t value)
{
	uint8_t bytes[8] = {0};

	write_u32(bytes, value);
	put_record(stream, tag, bytes, sizeof(bytes));
}

static void put_preparation(struct stream *records)
{
	static const uint8_t quantities[] = {
		RECORD_TMP_BYTES, RECORD_HOME_BYTES, RECORD_OPEN_FILES, RECORD_FILE_BYTES,
		RECORD_PIDS, RECORD_CODE_BYTES, RECORD_CREDIT, RECORD_PICTURE_CREDIT,
		RECORD_MEMORY_BYTES, RECORD_CPU_QUOTA,
	};
	static const uint8_t cpus[4] = {2, 0, 0, 0};

	for (uint32_t i = 0, words = 1 + random_below(4); i < words; i++)
		put_text(records, RECORD_ARG, "python3");
	for (uint32_t i = 0, words = random_below(4); i < words; i++)
		put_text(records, RECORD_ENV, "LANG=C.UTF-8");
	put_text(records, RECORD_HOME, "/home/baponi");
	if (random_below(2) == 0) {
		put_text(records, RECORD_CODE_FILE, "main.py");
		if (random_below(2) == 0)
			put_text(records, RECORD_CERTIFICATES, "-----BEGIN CERTIFICATE-----\n");
	}
	if (random_below(2) == 0)
		put_text(records, RECORD_HOME_CODE_FILE, ".main.py");
	if (random_below(2) == 0)
		put_text(records, RECORD_DOCK, "home-1");
	for (size_t i = 0; i < sizeof(quantities); i++)
		put_quantity(records, quantities[i], 1 + random_below(1u << 20));
	put_record(records, RECORD_CPUS, cpus, sizeof(cpus));
}

static void put_frame(struct stream *stream, uint8_t kind, const struct stream *payload)
{
	const uint8_t tail[4] = {kind, 0, 0, 0};

	put_u32(stream, (uint32_t)payload->length);
	put_u32(stream, random_below(4));
	put(stream, tail, sizeof(tail));
	put(stream, payload->bytes, payload->length);
}

static void make_stream(struct stream *stream)
{
	static struct stream payload;

	stream->length = 0;
	for (uint32_t i = 0; i < FRAMES_PER_STREAM; i++) {
		uint8_t kind = (uint8_t)(FRAME_PREPARE + random_below(FRAME_KILL));
		payload.length = 0;
		if (kind == FRAME_PREPARE)
			put_preparation(&payload);
		else if (kind == FRAME_CREDIT)
			put_u32(&payload, random_below(1u << 20));
		else if (kind == FRAME_CODE || kind == FRAME_STDIN)
			put(&payload, "print(1)\n", random_below(10));
		put_frame(stream, kind, &payload);
	}
}

static void mutate(struct stream *stream)
{
	static const uint32_t telling[] = {0, 1, 4, 5, 255, 65536, FRAME_IN_MAX_BYTES, FRAME_IN_MAX_BYTES + 1,
					   0x7fffffff, 0xfffffffb, 0xffffffff};

	for (uint32_t i = 0, times = 1 + random_below(4); i < times && stream->length > 4; i++) {
		size_t at = random_below((uint32_t)stream->length - 4);
		size_t cut = random_below((uint32_t)(stream->length - at));
		switch (random_below(5)) {
		case 0: stream->bytes[at] ^= (uint8_t)(1u << random_below(8)); break;
		case 1: stream->bytes[at] = (uint8_t)random_below(256); break;
		case 2: write_u32(stream->bytes + at, telling[random_below(sizeof(telling) / sizeof(telling[0]))]); break;
		case 3: /* a piece is missing */
			memmove(stream->bytes + at, stream->bytes + at + cut, stream->length - at - cut);
			stream->length -= cut;
			break;
		default: stream->length = at; break;
		}
	}
}

/* Reads each string whole, so that a sanitizer sees where it leads. */
static void look_at(const struct preparation *p)
{
	size_t total = 0;

	demand(p->args[0] != NULL && p->home != NULL && p->home[0] == '/', "ARG and HOME are there");
	for (char **word = p->args; *word != NULL; word++)
		total += strlen(*word);
	for (char **word = p->env; *word != NULL; word++) {
		demand(strchr(*word, '=') != NULL, "ENV has a name");
		total += strlen(*word);
	}
	demand(strstr(p->home, "/../") == NULL && strlen(p->home) <= 1024, "HOME is plain");
	demand(p->code_file == NULL || strchr(p->code_file, '/') == NULL, "CODE_FILE is a plain name");
	demand(p->tmp_bytes > 0 && p->tmp_bytes <= QUANTITY_MAX && p->cpus > 0 && p->cpus <= CPUS_MAX, "sizes have bounds");
	demand(p->code_bytes <= SOURCE_MAX_BYTES && p->stdin_bytes <= SOURCE_MAX_BYTES, "the source has a bound");
	demand(total < p->text_bytes, "all strings lie in the text");
}

/* The other readers of records, with the same bytes. */
static void take_as_others(const struct frame *frame)
{
	struct preparation preparation;

	if (prepare_parse_begin(&preparation, frame->payload, frame->length) == NULL) {
		demand(preparation.args[0] == NULL && preparation.home == NULL, "BEGIN holds variables and no words");
		demand(preparation.code_bytes <= SOURCE_MAX_BYTES, "the source has a bound");
		prepare_forget(&preparation);
	}
	if (prepare_parse_zygote(&preparation, frame->payload, frame->length) == NULL) {
		demand(preparation.args[0] != NULL && preparation.args[0][0] == '/', "a host is a path");
		prepare_forget(&preparation);
	}
}

static void take(const struct frame *frame, struct tally *tally)
{
	struct preparation preparation;

	tally->frames++;
	demand(frame->length <= FRAME_IN_MAX_BYTES, "a payload has a bound");
	demand(frame->kind >= FRAME_PREPARE && frame->kind <= FRAME_INPUT, "a kind is known");
	take_as_others(frame);
	if (frame->kind != FRAME_PREPARE)
		return;
	if (prepare_parse(&preparation, frame->payload, frame->length) != NULL) {
		tally->refused_preparations++;
		demand(preparation.text == NULL && preparation.args == NULL, "a refused PREPARE holds nothing");
		return;
	}
	tally->prepared++;
	look_at(&preparation);
	prepare_forget(&preparation);
}

/* Hands the stream to the reader in pieces. Returns how many frames came out; -1 when it refused the stream. */
static int read_stream(struct inbox *inbox, const struct stream *stream, struct tally *tally)
{
	int ends[2];
	int frames = 0;
	enum inbox_next next = INBOX_MORE;
	struct frame frame;

	demand(pipe2(ends, O_NONBLOCK) == 0, "a pipe");
	for (size_t at = 0; at < stream->length && next != INBOX_BAD;) {
		size_t piece = 1 + random_below((uint32_t)(stream->length - at));
		demand(write(ends[1], stream->bytes + at, piece) == (ssize_t)piece, "the pipe takes a piece");
		at += piece;
		demand(inbox_fill(inbox, ends[0]) == INBOX_DATA, "what was written is read");
		while ((next = inbox_next(inbox, &frame, FRAME_INPUT)) == INBOX_FRAME) {
			take(&frame, tally);
			frames++;
		}
	}
	close(ends[0]);
	close(ends[1]);
	inbox->start = inbox->end; /* each stream begins anew */
	inbox_forget(inbox);
	tally->streams++;
	tally->refused_streams += next == INBOX_BAD;
	return next == INBOX_BAD ? -1 : frames;
}

static void make_spawn(struct stream *records)
{
	static const uint8_t terminal[4] = {80, 0, 24, 0};

	records->length = 0;
	for (uint32_t i = 0, words = 1 + random_below(4); i < words; i++)
		put_text(records, SPAWN_ARG, "python3");
	for (uint32_t i = 0, words = random_below(4); i < words; i++)
		put_text(records, SPAWN_ENV, "LANG=C.UTF-8");
	put_text(records, SPAWN_CWD, "/workspace");
	put_text(records, SPAWN_USER, "baponi");
	if (random_below(2) == 0)
		put_record(records, SPAWN_TERMINAL, terminal, sizeof(terminal));
	if (random_below(2) == 0)
		put_record(records, SPAWN_STDIN, "", 0);
	if (random_below(2) == 0)
		put_record(records, SPAWN_CHANNEL, "", 0);
	if (random_below(2) == 0)
		put_record(records, SPAWN_BUILTIN, terminal, sizeof(terminal));
	if (random_below(2) == 0)
		put_record(records, SPAWN_MAKE_CWD, "", 0);
}

/* From memory of exactly its size, so that a sanitizer sees each read beyond it. */
static void parse_spawn(const struct stream *records, struct tally *tally)
{
	struct spawn_request request;
	uint8_t *payload = malloc(records->length > 0 ? records->length : 1);
	size_t total = 0;

	demand(payload != NULL, "memory");
	memcpy(payload, records->bytes, records->length);
	const char *error = request_parse(&request, payload, records->length);
	free(payload);
	if (error != NULL) {
		tally->refused_spawns++;
		demand(request.text == NULL && request.args == NULL && request.env == NULL, "a refused SPAWN holds nothing");
		return;
	}
	tally->spawned++;
	demand(request.args[0] != NULL && request.cwd != NULL && request.user != NULL, "ARG, CWD and USER are there");
	demand((request.columns == 0) == (request.rows == 0), "a terminal has both sizes");
	for (char **word = request.args; *word != NULL; word++)
		total += strlen(*word) + 1;
	for (char **word = request.env; *word != NULL; word++)
		total += strlen(*word) + 1;
	demand(total + strlen(request.cwd) + strlen(request.user) + 2 == request.text_bytes, "all strings lie in the text");
	request_forget(&request);
}

int main(int count, char **words)
{
	static struct stream stream;
	struct inbox inbox;
	struct tally tally = {0};
	time_t end = time(NULL) + (count > 1 ? atoi(words[1]) : 5);

	state = count > 2 ? strtoull(words[2], NULL, 0) | 1 : 88172645463325252u;
	demand(inbox_open(&inbox) == 0, "an inbox");
	for (int i = 0; i < 200; i++) {
		make_stream(&stream);
		demand(read_stream(&inbox, &stream, &tally) == (int)FRAMES_PER_STREAM, "a well-formed stream is read whole");
		make_spawn(&stream);
		parse_spawn(&stream, &tally);
	}
	demand(tally.prepared > 0 && tally.refused_preparations == 0, "well-formed PREPAREs are understood");
	demand(tally.refused_spawns == 0, "well-formed SPAWNs are understood");
	do {
		make_stream(&stream);
		mutate(&stream);
		read_stream(&inbox, &stream, &tally);
		make_spawn(&stream);
		mutate(&stream);
		parse_spawn(&stream, &tally);
	} while (time(NULL) < end);
	demand(tally.refused_streams > 0 && tally.refused_preparations > 0 && tally.refused_spawns > 0,
	       "mutations reach the refusals");
	printf("streams %lu frames %lu refused_streams %lu prepared %lu refused_preparations %lu spawned %lu refused_spawns %lu\n",
	       (unsigned long)tally.streams, (unsigned long)tally.frames, (unsigned long)tally.refused_streams,
	       (unsigned long)tally.prepared, (unsigned long)tally.refused_preparations,
	       (unsigned long)tally.spawned, (unsigned long)tally.refused_spawns);
	return 0;
}
