/* The interpreter that the zygote lives in, through its C API (https://docs.python.org/3/c-api/). No header of Python is
 * needed: the functions in use have been stable since Python 3.7 and are looked up by name. An interpreter that lacks one
 * ends the zygote, and its runs are started without one. */
#ifndef GLOVEBOX_PYTHON_INTERPRETER_H
#define GLOVEBOX_PYTHON_INTERPRETER_H

#include <stddef.h>
#include <sys/types.h>

/* Imports modules, whose names commas separate. Exits with a report when one cannot be imported. */
void interpreter_preload(const char *names);

/* fork(2), with what the interpreter does before it, and after it in the parent. */
pid_t interpreter_fork(void);

/* What the interpreter does after a fork, in the child. */
void interpreter_after_fork(void);

/* Takes the global lock of the interpreter. Returns its state before, for interpreter_unlock. */
int interpreter_lock(void);
void interpreter_unlock(int state);

/* Makes the working directory, which is the home, the first one to import from, instead of the directory of the program.
 * Nothing happens when the interpreter does not import from there (`-P`, PYTHONSAFEPATH). */
void interpreter_import_from_home(const char *program);

/* Sets `__file__` of the program, which otherwise is the path on the command line. */
void interpreter_set_file(const char *path);

/* Sets the environment of a run: NAME=value, each with its NUL. Returns 0, or -1 after the interpreter has printed why. */
int interpreter_begin(const char *variables, size_t bytes);

#endif
