/* Records that describe files, on standard output of a builtin. */
#ifndef GLOVEBOX_AGENT_ENTRIES_H
#define GLOVEBOX_AGENT_ENTRIES_H

#include <stddef.h>
#include <sys/stat.h>

/* Writes all bytes to standard output. Returns 0, or -1 with errno. */
int entries_put(const void *bytes, size_t length);

/* Writes a record: u32 length of what follows; u8 kind (f, d, l, p, s or v), u32 mode, u32 uid, u32 gid, u64 size, u64 mtime in ms,
 * u16 length of the name, name, target of a link. Returns 0, or -1 with errno. */
int entries_put_entry(int directory, const char *path, const char *name, const struct stat *status);

/* Writes the records of at most `most` entries of a directory whose names follow `after`, in the order of their bytes. Returns 0,
 * or -1 with errno. */
int entries_list(const char *path, const char *after, size_t most);

#endif
