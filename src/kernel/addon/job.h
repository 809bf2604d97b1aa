/* A call from JavaScript that runs on a thread of libuv's pool. */
#ifndef GLOVEBOX_KERNEL_JOB_H
#define GLOVEBOX_KERNEL_JOB_H

#include <stddef.h>
#include <stdint.h>

#define ARGUMENTS_MAX 7
#define NUMBERS_MAX 10

struct job {
	/* The arguments: numbers and texts, each in the order of the signature. Texts end with NUL and contain none. */
	int64_t number[ARGUMENTS_MAX];
	char *text[ARGUMENTS_MAX];

	/* The result, of the type that the operation declares. */
	int64_t result[NUMBERS_MAX];
	unsigned char *bytes;
	size_t size;

	/* errno of the call that failed, or 0; and its name. */
	int error;
	const char *step;
};

enum result_type { RESULT_NONE, RESULT_NUMBER, RESULT_NUMBERS, RESULT_BYTES };

struct operation {
	const char *name;
	/* One letter for each argument: n is a number, t is a text, passed as a Buffer. */
	const char *signature;
	enum result_type result;
	void (*run)(struct job *job);
};

/* Records the current errno and the name of the call that failed. */
void job_fail(struct job *job, const char *step);

/* Each list ends with an entry whose name is NULL. */
extern const struct operation file_operations[];
extern const struct operation change_operations[];
extern const struct operation mount_operations[];
extern const struct operation image_mount_operations[];
extern const struct operation disk_operations[];
extern const struct operation network_operations[];
extern const struct operation notify_operations[];
extern const struct operation workspace_operations[];

#endif
