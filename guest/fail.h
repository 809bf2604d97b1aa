/* How a step that went wrong is told: one line of text, kept until somebody asks. */
#ifndef GLOVEBOX_FAIL_H
#define GLOVEBOX_FAIL_H

/* Longest text kept, its final NUL included. */
#define FAIL_TEXT_BYTES 240

/* Keeps "<step>: <errno in words>". Always returns -1, so that a step can `return fail(…)`. */
int fail(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* The text of the last failure of this process. */
const char *fail_text(void);

#endif
