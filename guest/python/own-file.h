/* A program that asks for its own file, `__file__` or `sys.argv[0]`, is also a file in its home while it runs. */
#ifndef GLOVEBOX_OWN_FILE_H
#define GLOVEBOX_OWN_FILE_H

#include <stddef.h>

enum own_file {
	OWN_FILE_ORIGINAL, /* it does not ask, or there is no room for a copy: it knows its original file */
	OWN_FILE_COPY,
	OWN_FILE_COPY_AS_ARGUMENT, /* it reads its first argument, which is the path of the copy as well */
};

/* Copies the program to the working directory if its text asks for its file, and writes the path of the copy to `path`. */
enum own_file own_file_copy(const char *program, char *path, size_t size);

#endif
