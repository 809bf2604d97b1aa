/* Operations on files of a sandbox. Each runs in a process of its own that has become the user, so that it reaches what a program
 * of the user would, and nothing else. */
#ifndef GLOVEBOX_AGENT_BUILTIN_H
#define GLOVEBOX_AGENT_BUILTIN_H

#include <stdint.h>

enum builtin {
	BUILTIN_NONE = 0,
	BUILTIN_STAT = 1,   /* path */
	BUILTIN_LIST = 2,   /* path, name after which it continues, number of entries */
	BUILTIN_READ = 3,   /* path, offset, number of bytes or nothing for all */
	BUILTIN_WRITE = 4,  /* path, mode in octal or nothing, "append" or nothing, "parents" or nothing */
	BUILTIN_MAKE = 5,   /* path, mode in octal or nothing, "parents" or nothing */
	BUILTIN_MOVE = 6,   /* from, to, "replace" or nothing */
	BUILTIN_COPY = 7,   /* from, to, "replace" or nothing */
	BUILTIN_REMOVE = 8, /* path, "recursive" or nothing */
	BUILTIN_WATCH = 9,  /* path, "recursive" or nothing */
	BUILTIN_RESTORE = 10, /* name of a state (restore.h) */
	BUILTIN_LAST = BUILTIN_RESTORE,
};

/* Performs an operation. Its results are records on standard output; an error is its number in decimal on standard error and
 * exit code 1. */
_Noreturn void builtin_run(uint32_t operation, char *const *args);

#endif
