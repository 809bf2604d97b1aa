/* One call from JavaScript on its way through a thread of libuv's pool and back. */
#ifndef GLOVEBOX_STORAGE_JOB_H
#define GLOVEBOX_STORAGE_JOB_H

#include <stddef.h>
#include <stdint.h>

#define ARGUMENTS_MAX 7
#define NUMBERS_MAX 10

struct job {
	/* What was asked: numbers and texts, each in the order of the verb's signature. Texts end with NUL and hold none. */
	int64_t number[ARGUMENTS_MAX];
	char *text[ARGUMENTS_MAX];

	/* The answer, as the verb's kind of answer says. */
	int64_t result[NUMBERS_MAX];
	unsigned char *bytes;
	size_t size;

	/* An errno, or 0; and what failed. */
	int error;
	const char *step;
};

enum answer { ANSWER_NOTHING, ANSWER_NUMBER, ANSWER_NUMBERS, ANSWER_BYTES };

struct verb {
	const char *name;
	/* One letter for each argument: n a number, t a text given as bytes. */
	const char *signature;
	enum answer answer;
	void (*run)(struct job *job);
};

/* Notes the current errno and what failed. */
void job_fail(struct job *job, const char *step);

/* Each list ends with a verb without a name. */
extern const struct verb file_verbs[];
extern const struct verb change_verbs[];
extern const struct verb mount_verbs[];
extern const struct verb image_verbs[];

#endif
