/* The file of a jail that contains the source text of its run. It belongs to root and is read-only, as is its mount: a run
 * cannot change its own source. */
#ifndef GLOVEBOX_CODE_FILE_H
#define GLOVEBOX_CODE_FILE_H

#include <stdint.h>

#include "prepare.h"

/* Mounts /run with the empty CODE_FILE. Returns a descriptor that writes the file, NO_CODE for a preparation without
 * CODE_FILE, or -1 with fail_text. */
#define NO_CODE (-2)
int code_file_mount(const struct preparation *preparation);

/* Writes the source text to that descriptor, and closes it. Returns 0, or -1 with fail_text. */
int code_file_write(int fd, const uint8_t *code, uint64_t bytes);

/* In the main process, in its home: copies the file to the name HOME_CODE_FILE, and replaces its path among the arguments by
 * that of the copy. Without room for a copy, the program keeps its file. */
void code_file_copy(const struct preparation *preparation);

#endif
