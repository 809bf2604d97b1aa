#include "own-words.h"

#include <linux/prctl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

/* Numbers of fields in /proc/self/stat, after the name: proc_pid_stat(5). */
enum { START_CODE = 26, END_CODE = 27, START_STACK = 28, START_DATA = 45, END_DATA = 46, START_BRK = 47, FIELDS = 53 };

/* Reads the numbers of /proc/self/stat by the numbers of their fields. Returns 0, or -1. */
static int read_fields(uint64_t fields[FIELDS])
{
	char text[2048];
	FILE *file = fopen("/proc/self/stat", "re");
	size_t length = file == NULL ? 0 : fread(text, 1, sizeof(text) - 1, file);

	if (file != NULL)
		fclose(file);
	text[length] = '\0';
	char *at = strrchr(text, ')');
	if (at == NULL || length < (size_t)(at - text) + 4)
		return -1;
	at += 3; /* the state, field 3 */
	for (int field = 4; field < FIELDS; field++) {
		at = strchr(at, ' ');
		if (at == NULL)
			return -1;
		at++;
		fields[field] = strtoull(at, NULL, 10);
	}
	return 0;
}

int own_words_show(struct own_words *words, size_t args_bytes, size_t env_bytes)
{
	uint64_t fields[FIELDS] = {0};

	*words = (struct own_words){.args_bytes = args_bytes, .env_bytes = env_bytes};
	if (args_bytes + env_bytes == 0 || read_fields(fields) < 0)
		return -1;
	words->args = mmap(NULL, args_bytes + env_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (words->args == MAP_FAILED)
		return -1;
	words->env = words->args + args_bytes;
	const uint64_t start = (uintptr_t)words->args;
	struct prctl_mm_map map = {
		.start_code = fields[START_CODE],
		.end_code = fields[END_CODE],
		.start_data = fields[START_DATA],
		.end_data = fields[END_DATA],
		.start_brk = fields[START_BRK],
		.brk = (uintptr_t)sbrk(0),
		.start_stack = fields[START_STACK],
		.arg_start = start,
		.arg_end = start + args_bytes,
		.env_start = start + args_bytes,
		.env_end = start + args_bytes + env_bytes,
		.auxv = NULL,
		.auxv_size = 0,
		.exe_fd = (uint32_t)-1,
	};
	return prctl(PR_SET_MM, PR_SET_MM_MAP, (unsigned long)&map, sizeof(map), 0);
}

static size_t put(char *to, size_t room, char *const *words)
{
	size_t filled = 0;

	for (; *words != NULL; words++) {
		size_t length = strlen(*words) + 1;
		if (length > room - filled)
			return SIZE_MAX;
		memcpy(to + filled, *words, length);
		filled += length;
	}
	return filled;
}

int own_words_set(struct own_words *words, char *const *args, char *const *env)
{
	return put(words->args, words->args_bytes, args) == words->args_bytes &&
		       put(words->env, words->env_bytes, env) == words->env_bytes ? 0 : -1;
}
