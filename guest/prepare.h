/* Parses the records of a PREPARE frame. */
#ifndef GLOVEBOX_PREPARE_H
#define GLOVEBOX_PREPARE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum record_tag {
	RECORD_ARG = 1,
	RECORD_ENV = 2,
	RECORD_HOME = 3,
	RECORD_CODE_FILE = 4,
	RECORD_TMP_BYTES = 5,
	RECORD_HOME_BYTES = 6,
	RECORD_OPEN_FILES = 7,
	RECORD_FILE_BYTES = 8,
	RECORD_PIDS = 9,
	RECORD_CPUS = 10,
	RECORD_CODE_BYTES = 11,
	RECORD_STDIN_BYTES = 12,
	RECORD_CREDIT = 13,
	RECORD_DOCK = 14,
	RECORD_PREWARM = 15,
	RECORD_VOLUMES = 16,
	RECORD_PICTURE_CREDIT = 17,
	RECORD_MEMORY_BYTES = 18,
	RECORD_CPU_QUOTA = 19,
	RECORD_HOME_CODE_FILE = 20,
	RECORD_ROOT_DISK = 21,
	RECORD_ROOT_IMAGE = 22,
	RECORD_CERTIFICATES = 23,
	RECORD_SET_ID = 24,
	RECORD_SPARE = 25,
	RECORD_LAST = RECORD_SPARE,
};

#define WORDS_MAX 4096u
#define CPUS_MAX 1024u
/* The runner's own messages, which carry both, are no larger. */
#define SOURCE_MAX_BYTES (8u * 1024 * 1024)
/* Far beyond any limit, far below where sums of two could overflow. */
#define QUANTITY_MAX (UINT64_C(1) << 60)

/* How the main process of a prewarmed jail starts. */
enum prewarm {
	PREWARM_NONE = 0,
	PREWARM_EXEC = 1, /* by exec at GO; it waits for its standard input */
	PREWARM_FORK = 2, /* by a fork of the zygote */
};

struct preparation {
	char **args; /* ends with NULL */
	char **env;  /* ends with NULL */
	const char *home;
	const char *code_file; /* NULL: standard input carries the source text */
	const char *home_code_file; /* name of its copy in the home; NULL without one */
	const char *certificates; /* that the run trusts, in PEM; NULL: those of the image */
	const char *dock;      /* entry of the dock that is the home; NULL: a tmpfs is */
	const char *root_disk; /* of a sandbox: entry of the dock that holds what differs from its image; NULL: none */
	const char *root_image; /* of a sandbox: entry of the dock below which the parts of its image are mounted */
	const char *volumes;   /* entry of the dock below which volumes are mounted; NULL: there are none */
	uint64_t tmp_bytes;
	uint64_t home_bytes;
	uint64_t open_files;
	uint64_t file_bytes;
	uint64_t pids;
	uint64_t memory_bytes; /* that the run is shown */
	uint64_t cpu_quota_us; /* the same, for each 100 ms */
	uint64_t code_bytes;
	uint64_t stdin_bytes;
	uint64_t credit;
	uint64_t picture_credit;
	uint32_t cpus;
	enum prewarm prewarm;
	bool has_stdin;
	bool forbids_set_id; /* of a sandbox: files get no set-user-ID and set-group-ID bits */
	bool takes_spare;    /* of a sandbox: its first Python kernel may be forked from the spare interpreter */

	char *text; /* holds every string above */
	size_t text_bytes;
};

/* Parses the payload of a PREPARE frame. Returns NULL, or a message; then nothing is allocated. */
const char *prepare_parse(struct preparation *preparation, const uint8_t *payload, size_t length);

/* The same for BEGIN (ENV, DOCK, VOLUMES, CODE_BYTES and STDIN_BYTES) and ZYGOTE (ARG and ENV). */
const char *prepare_parse_begin(struct preparation *preparation, const uint8_t *payload, size_t length);
const char *prepare_parse_zygote(struct preparation *preparation, const uint8_t *payload, size_t length);

/* Overwrites and frees what prepare_parse allocated. Accepts a zeroed structure. */
void prepare_forget(struct preparation *preparation);

#endif
