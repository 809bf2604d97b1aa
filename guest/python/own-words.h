/* The arguments and the environment of a process, as /proc shows them. */
#ifndef GLOVEBOX_PYTHON_OWN_WORDS_H
#define GLOVEBOX_PYTHON_OWN_WORDS_H

#include <stddef.h>

struct own_words {
	char *args; /* each with its NUL */
	size_t args_bytes;
	char *env; /* follows the arguments, each with its NUL */
	size_t env_bytes;
};

/* Makes /proc/self/cmdline and /proc/self/environ show memory of its own, which is empty. Returns 0, or -1 when the kernel
 * does not support it. */
int own_words_show(struct own_words *words, size_t args_bytes, size_t env_bytes);

/* Fills it in. Returns 0, or -1 when they have another size. */
int own_words_set(struct own_words *words, char *const *args, char *const *env);

#endif
