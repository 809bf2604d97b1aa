/* Parses the records of a SPAWN frame. */
#ifndef GLOVEBOX_AGENT_REQUEST_H
#define GLOVEBOX_AGENT_REQUEST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum spawn_tag {
	SPAWN_ARG = 1,
	SPAWN_ENV = 2,
	SPAWN_CWD = 3,
	SPAWN_USER = 4,
	SPAWN_TERMINAL = 5, /* u16 columns, u16 rows */
	SPAWN_STDIN = 6,    /* empty: standard input can be written */
	SPAWN_CHANNEL = 7,  /* empty: there is a channel at descriptor 3 */
	SPAWN_MAKE_CWD = 8, /* empty: CWD is created if it does not exist, and belongs to the user then */
	SPAWN_BUILTIN = 9,  /* u32: an operation of the agent (builtin.h) instead of a program; ARG are its arguments */
};

struct spawn_request {
	char **args; /* ends with NULL */
	char **env;  /* ends with NULL */
	const char *cwd;
	const char *user;
	uint16_t columns; /* 0: no terminal */
	uint16_t rows;
	uint32_t builtin; /* 0: a program */
	bool has_stdin;
	bool has_channel;
	bool makes_cwd;

	char *text; /* holds every string above */
	size_t text_bytes;
};

/* Returns NULL, or a message; then nothing is allocated. */
const char *request_parse(struct spawn_request *request, const uint8_t *payload, size_t length);

void request_forget(struct spawn_request *request);

#endif
