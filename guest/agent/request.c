#include "request.h"

#include <stdlib.h>
#include <string.h>

#include "../frames.h"
#include "../prepare.h"

#define RECORD_HEADER_BYTES 5u
#define TAG(name) (1u << SPAWN_##name)

struct words {
	char **list;
	size_t count;
};

static char *keep_text(struct spawn_request *request, const uint8_t *value, uint32_t length)
{
	if (memchr(value, '\0', length) != NULL)
		return NULL;
	char *text = request->text + request->text_bytes;
	memcpy(text, value, length);
	text[length] = '\0';
	request->text_bytes += (size_t)length + 1;
	return text;
}

static const char *keep_word(struct spawn_request *request, struct words *words, const uint8_t *value, uint32_t length)
{
	char *text = words->count == WORDS_MAX ? NULL : keep_text(request, value, length);

	if (text == NULL)
		return "too many words, or a NUL in one";
	words->list[words->count++] = text;
	return NULL;
}

static const char *keep_terminal(struct spawn_request *request, const uint8_t *value, uint32_t length)
{
	if (length != 4)
		return "TERMINAL is not 4 bytes long";
	request->columns = (uint16_t)(value[0] | value[1] << 8);
	request->rows = (uint16_t)(value[2] | value[3] << 8);
	return request->columns == 0 || request->rows == 0 ? "a terminal without columns or rows" : NULL;
}

static const char *keep_record(struct spawn_request *request, uint8_t tag, const uint8_t *value, uint32_t length)
{
	switch (tag) {
	case SPAWN_CWD: return (request->cwd = keep_text(request, value, length)) == NULL ? "a NUL in CWD" : NULL;
	case SPAWN_USER: return (request->user = keep_text(request, value, length)) == NULL ? "a NUL in USER" : NULL;
	case SPAWN_TERMINAL: return keep_terminal(request, value, length);
	case SPAWN_BUILTIN:
		if (length != 4)
			return "BUILTIN is not 4 bytes long";
		request->builtin = read_u32(value);
		return NULL;
	case SPAWN_STDIN: request->has_stdin = true; break;
	case SPAWN_CHANNEL: request->has_channel = true; break;
	case SPAWN_MAKE_CWD: request->makes_cwd = true; break;
	default: return "unknown record";
	}
	return length == 0 ? NULL : "a record without a value has one";
}

static const char *parse(struct spawn_request *request, const uint8_t *at, size_t left)
{
	struct words args = {.list = request->args};
	struct words env = {.list = request->env};
	uint32_t seen = 0;
	const char *error = NULL;

	while (left > 0 && error == NULL) {
		/* BOUNDARY: a length is compared with what is left before it is used. */
		if (left < RECORD_HEADER_BYTES || left - RECORD_HEADER_BYTES < read_u32(at + 1))
			return "a record is cut short";
		uint8_t tag = at[0];
		uint32_t length = read_u32(at + 1);
		const uint8_t *value = at + RECORD_HEADER_BYTES;
		at += RECORD_HEADER_BYTES + length;
		left -= RECORD_HEADER_BYTES + length;
		if (tag == SPAWN_ARG || tag == SPAWN_ENV) {
			error = keep_word(request, tag == SPAWN_ARG ? &args : &env, value, length);
			continue;
		}
		if (tag > SPAWN_BUILTIN || (seen & 1u << tag) != 0)
			return "a record is unknown or repeated";
		seen |= 1u << tag;
		error = keep_record(request, tag, value, length);
	}
	if (error != NULL)
		return error;
	if (args.count == 0 || (seen & TAG(CWD)) == 0 || (seen & TAG(USER)) == 0)
		return "no ARG, CWD or USER";
	return NULL;
}

const char *request_parse(struct spawn_request *request, const uint8_t *payload, size_t length)
{
	*request = (struct spawn_request){
		.args = calloc(WORDS_MAX + 1, sizeof(char *)),
		.env = calloc(WORDS_MAX + 2, sizeof(char *)), /* and HOME */
		.text = malloc(length + 1),
	};
	const char *error = "out of memory";
	if (request->args != NULL && request->env != NULL && request->text != NULL)
		error = parse(request, payload, length);
	if (error != NULL)
		request_forget(request);
	return error;
}

void request_forget(struct spawn_request *request)
{
	if (request->text != NULL)
		explicit_bzero(request->text, request->text_bytes);
	free(request->text);
	free(request->args);
	free(request->env);
	*request = (struct spawn_request){0};
}
