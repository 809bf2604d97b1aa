/* The part of the zygote that is written in Python. */
#ifndef GLOVEBOX_PYTHON_PRELUDE_H
#define GLOVEBOX_PYTHON_PRELUDE_H

/* Defines preload(names), which imports modules before the first fork, and begin(variables), which sets the environment
 * of a run right after its fork. */
extern const char python_prelude[];

#endif
