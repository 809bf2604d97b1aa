/* The text of the last failed step. */
#ifndef GLOVEBOX_FAIL_H
#define GLOVEBOX_FAIL_H

/* Size of the text, including its NUL. */
#define FAIL_TEXT_BYTES 240

/* Stores "<step>: <strerror(errno)>". Always returns -1, so that a step can `return fail(…)`. */
int fail(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Returns the text of the last failure of this process. */
const char *fail_text(void);

#endif
