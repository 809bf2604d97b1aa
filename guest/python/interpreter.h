/* The interpreter that the zygote lives in, through its C API (https://docs.python.org/3/c-api/). No header of Python is
 * needed: the functions in use have been stable since Python 3.7 and are looked up by name. An interpreter that lacks one
 * ends the zygote, and its runs are started without one. */
#ifndef GLOVEBOX_PYTHON_INTERPRETER_H
#define GLOVEBOX_PYTHON_INTERPRETER_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

/* Imports modules, whose names commas separate. Exits with a report when one cannot be imported. */
void interpreter_preload(const char *names);

/* Prepares the interpreter for a fork of which only the child goes on. */
void interpreter_before_fork(void);

/* Makes a function of C, which is called with one argument, one of the built-in functions. */
void interpreter_add_builtin(const char *name, void *(*function)(void *self, void *argument));

/* Calls `callable` with two texts of bytes. Returns whether its result is true; prints an exception. */
bool interpreter_agrees(void *callable, const char *one, size_t one_bytes, const char *other, size_t other_bytes);

/* Returns a reference to None. */
void *interpreter_none(void);

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

/* Sets `sys.argv[0]`. */
void interpreter_set_first_argument(const char *path);

/* Sets the environment of a run: NAME=value, each with its NUL. Returns 0, or -1 after the interpreter has printed why. */
int interpreter_begin(const char *variables, size_t bytes);

#endif
