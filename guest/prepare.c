#include "prepare.h"

#include <stdlib.h>
#include <string.h>

#include "frames.h"

#define RECORD_HEADER_BYTES 5u

struct record {
	uint8_t tag;
	uint32_t length;
	const uint8_t *value;
};

struct reader {
	const uint8_t *at;
	size_t left;
};

/* BOUNDARY: lengths come from outside; each is compared with what is left before it is used. */
static bool next_record(struct reader *reader, struct record *record)
{
	if (reader->left < RECORD_HEADER_BYTES)
		return false;
	uint32_t length = read_u32(reader->at + 1);
	if (reader->left - RECORD_HEADER_BYTES < length)
		return false;
	*record = (struct record){.tag = reader->at[0], .length = length, .value = reader->at + RECORD_HEADER_BYTES};
	reader->at += RECORD_HEADER_BYTES + length;
	reader->left -= RECORD_HEADER_BYTES + length;
	return true;
}

/* Copies a value as a string behind those before it. A record is 5 bytes longer than its value, a string one, so
 * that all strings fit into as many bytes as the payload has. */
static char *keep_text(struct preparation *p, const struct record *record)
{
	if (memchr(record->value, '\0', record->length) != NULL)
		return NULL;
	char *text = p->text + p->text_bytes;
	memcpy(text, record->value, record->length);
	text[record->length] = '\0';
	p->text_bytes += (size_t)record->length + 1;
	return text;
}

static const char *keep_word(struct preparation *p, const struct record *record, char **words, size_t *count)
{
	if (*count == WORDS_MAX)
		return "too many ARG or ENV records";
	char *text = keep_text(p, record);
	if (text == NULL)
		return "ARG or ENV holds a NUL";
	if (record->tag == RECORD_ENV && (text[0] == '=' || strchr(text, '=') == NULL))
		return "ENV is not NAME=value";
	words[(*count)++] = text;
	return NULL;
}

/* Absolute, and without any component that means another place than it says. */
static bool is_plain_path(const char *path)
{
	if (path[0] != '/' || path[1] == '\0' || strlen(path) > 1024)
		return false;
	for (const char *part = path; part != NULL; part = strchr(part + 1, '/')) {
		const char *name = part + 1;
		size_t length = strcspn(name, "/");
		if (length == 0 || (length == 1 && name[0] == '.') || (length == 2 && memcmp(name, "..", 2) == 0))
			return false;
	}
	return true;
}

static bool is_plain_name(const char *name)
{
	size_t length = strlen(name);

	return length > 0 && length <= 255 && strchr(name, '/') == NULL && strcmp(name, ".") != 0 &&
	       strcmp(name, "..") != 0;
}

static const char *keep_path(struct preparation *p, const struct record *record)
{
	char *text = keep_text(p, record);

	if (text == NULL)
		return "a path or a name holds a NUL";
	if (record->tag == RECORD_HOME) {
		p->home = text;
		return is_plain_path(text) ? NULL : "HOME is not a plain absolute path";
	}
	if (record->tag == RECORD_DOCK) {
		p->dock = text;
		return is_plain_name(text) ? NULL : "DOCK is not a plain name";
	}
	if (record->tag == RECORD_VOLUMES) {
		p->volumes = text;
		return is_plain_name(text) ? NULL : "VOLUMES is not a plain name";
	}
	if (record->tag == RECORD_ROOT_DISK) {
		p->root_disk = text;
		return is_plain_name(text) ? NULL : "ROOT_DISK is not a plain name";
	}
	if (record->tag == RECORD_ROOT_IMAGE) {
		p->root_image = text;
		return is_plain_name(text) ? NULL : "ROOT_IMAGE is not a plain name";
	}
	if (record->tag == RECORD_CERTIFICATES) {
		p->certificates = text;
		return NULL;
	}
	if (record->tag == RECORD_HOME_CODE_FILE) {
		p->home_code_file = text;
		return is_plain_name(text) ? NULL : "HOME_CODE_FILE is not a plain file name";
	}
	p->code_file = text;
	return is_plain_name(text) ? NULL : "CODE_FILE is not a plain file name";
}

static uint64_t *quantity_of(struct preparation *p, uint8_t tag)
{
	switch (tag) {
	case RECORD_TMP_BYTES: return &p->tmp_bytes;
	case RECORD_HOME_BYTES: return &p->home_bytes;
	case RECORD_OPEN_FILES: return &p->open_files;
	case RECORD_FILE_BYTES: return &p->file_bytes;
	case RECORD_PIDS: return &p->pids;
	case RECORD_CODE_BYTES: return &p->code_bytes;
	case RECORD_STDIN_BYTES: return &p->stdin_bytes;
	case RECORD_CREDIT: return &p->credit;
	case RECORD_PICTURE_CREDIT: return &p->picture_credit;
	case RECORD_MEMORY_BYTES: return &p->memory_bytes;
	case RECORD_CPU_QUOTA: return &p->cpu_quota_us;
	default: return NULL;
	}
}

static const char *keep_quantity(struct preparation *p, const struct record *record)
{
	if (record->tag == RECORD_CPUS) {
		if (record->length != 4)
			return "CPUS is not 4 bytes long";
		p->cpus = read_u32(record->value);
		return NULL;
	}
	if (record->tag == RECORD_SET_ID) {
		p->forbids_set_id = true;
		return record->length == 4 && read_u32(record->value) == 0 ? NULL : "SET_ID is not 0";
	}
	if (record->tag == RECORD_SPARE) {
		p->takes_spare = true;
		return record->length == 4 && read_u32(record->value) == 1 ? NULL : "SPARE is not 1";
	}
	if (record->tag == RECORD_PREWARM) {
		if (record->length != 4 || read_u32(record->value) < PREWARM_EXEC || read_u32(record->value) > PREWARM_FORK)
			return "AHEAD is neither 1 nor 2";
		p->prewarm = read_u32(record->value) == PREWARM_EXEC ? PREWARM_EXEC : PREWARM_FORK;
		return NULL;
	}
	uint64_t *quantity = quantity_of(p, record->tag);
	if (quantity == NULL)
		return "unknown record";
	if (record->length != 8)
		return "a quantity is not 8 bytes long";
	*quantity = read_u64(record->value);
	if (*quantity > QUANTITY_MAX)
		return "a quantity is too large";
	return NULL;
}

/* A sandbox has no program of its own: its main process is the agent. */
static const char *check_program(const struct preparation *p)
{
	bool is_sandbox = p->root_disk != NULL;

	if (is_sandbox != (p->root_image != NULL))
		return "one of ROOT_DISK and ROOT_IMAGE without the other";
	/* What the spare interpreter becomes has no second filter. */
	if (p->forbids_set_id && p->takes_spare)
		return "SPARE with SET_ID";
	if (is_sandbox)
		return p->args[0] != NULL || p->home != NULL || p->code_file != NULL || p->code_bytes > 0 || p->has_stdin ||
			       p->certificates != NULL || p->prewarm != PREWARM_NONE
			       ? "a sandbox with what belongs to a run" : NULL;
	if (p->forbids_set_id || p->takes_spare)
		return "SET_ID or SPARE without a sandbox";
	if (p->args[0] == NULL || p->args[0][0] == '\0')
		return "no ARG";
	return p->home == NULL ? "no HOME" : NULL;
}

/* Zero means "no limit" to tmpfs, and nothing useful anywhere else. */
static const char *check_whole(const struct preparation *p)
{
	const char *error = check_program(p);

	if (error != NULL)
		return error;
	if (p->tmp_bytes == 0 || p->home_bytes == 0)
		return "TMP_BYTES and HOME_BYTES must be there and more than 0";
	if (p->open_files == 0 || p->file_bytes == 0 || p->pids == 0)
		return "OPEN_FILES, FILE_BYTES and PIDS must be there and more than 0";
	if (p->memory_bytes == 0 || p->cpu_quota_us == 0)
		return "MEMORY_BYTES and CPU_QUOTA must be there and more than 0";
	if (p->cpus == 0 || p->cpus > CPUS_MAX)
		return "CPUS must be there, from 1 to 1024";
	if (p->code_bytes > SOURCE_MAX_BYTES || p->stdin_bytes > SOURCE_MAX_BYTES)
		return "CODE_BYTES or STDIN_BYTES is too large";
	if (p->prewarm != PREWARM_NONE &&
	    (p->code_bytes > 0 || p->has_stdin || p->dock != NULL || p->volumes != NULL))
		return "AHEAD with what belongs to a run";
	if (p->certificates != NULL && p->code_file == NULL)
		return "CERTIFICATES without CODE_FILE";
	if (p->prewarm == PREWARM_FORK && p->code_file == NULL)
		return "a fork without CODE_FILE";
	return NULL;
}

static const char *check_begin(const struct preparation *p)
{
	return p->code_bytes > SOURCE_MAX_BYTES || p->stdin_bytes > SOURCE_MAX_BYTES
		? "CODE_BYTES or STDIN_BYTES is too large" : NULL;
}

static const char *check_zygote(const struct preparation *p)
{
	return p->args[0] == NULL || p->args[0][0] != '/' ? "no ARG that is a path" : NULL;
}

#define TAG(name) (1u << RECORD_##name)

/* Records that hold one path or name. */
#define TEXT_TAGS (TAG(HOME) | TAG(CODE_FILE) | TAG(DOCK) | TAG(VOLUMES) | TAG(HOME_CODE_FILE) | TAG(ROOT_DISK) | TAG(ROOT_IMAGE) | TAG(CERTIFICATES))

/* `allowed` has a bit for each tag. */
static const char *parse_records(struct preparation *p, struct reader reader, uint32_t allowed)
{
	struct record record;
	size_t args = 0;
	size_t env = 0;
	uint32_t seen = 0;

	while (reader.left > 0) {
		const char *error;
		if (!next_record(&reader, &record))
			return "a record is cut short";
		if (record.tag < RECORD_ARG || record.tag > RECORD_LAST || (allowed & 1u << record.tag) == 0)
			return "unknown record";
		bool repeats = record.tag == RECORD_ARG || record.tag == RECORD_ENV;
		if (!repeats && (seen & 1u << record.tag) != 0)
			return "a record is repeated";
		seen |= 1u << record.tag;
		if (record.tag == RECORD_ARG)
			error = keep_word(p, &record, p->args, &args);
		else if (record.tag == RECORD_ENV)
			error = keep_word(p, &record, p->env, &env);
		else if ((1u << record.tag & TEXT_TAGS) != 0)
			error = keep_path(p, &record);
		else
			error = keep_quantity(p, &record);
		if (error != NULL)
			return error;
	}
	p->has_stdin = (seen & TAG(STDIN_BYTES)) != 0;
	return NULL;
}

static const char *parse(struct preparation *p, const uint8_t *payload, size_t length, uint32_t allowed,
			 const char *(*check)(const struct preparation *))
{
	*p = (struct preparation){
		.args = calloc(WORDS_MAX + 1, sizeof(char *)),
		.env = calloc(WORDS_MAX + 1, sizeof(char *)),
		.text = malloc(length + 1),
	};
	const char *error = "out of memory";
	if (p->args != NULL && p->env != NULL && p->text != NULL)
		error = parse_records(p, (struct reader){.at = payload, .left = length}, allowed);
	if (error == NULL)
		error = check(p);
	if (error != NULL)
		prepare_forget(p);
	return error;
}

const char *prepare_parse(struct preparation *p, const uint8_t *payload, size_t length)
{
	return parse(p, payload, length, UINT32_MAX, check_whole);
}

#define BEGIN_TAGS (TAG(ENV) | TAG(DOCK) | TAG(VOLUMES) | TAG(CODE_BYTES) | TAG(STDIN_BYTES))

const char *prepare_parse_begin(struct preparation *p, const uint8_t *payload, size_t length)
{
	return parse(p, payload, length, BEGIN_TAGS, check_begin);
}

const char *prepare_parse_zygote(struct preparation *p, const uint8_t *payload, size_t length)
{
	return parse(p, payload, length, TAG(ARG) | TAG(ENV), check_zygote);
}

void prepare_forget(struct preparation *p)
{
	if (p->text != NULL)
		explicit_bzero(p->text, p->text_bytes);
	free(p->text);
	free(p->args);
	free(p->env);
	*p = (struct preparation){0};
}
