/* The spare interpreter of a slot: started before its sandbox is known, and forked once, into the first Python kernel. */
#ifndef GLOVEBOX_PYTHON_SPARE_H
#define GLOVEBOX_PYTHON_SPARE_H

/* Offers the program of the interpreter a function `_glovebox_spare` among the built-in ones. Called with a function, it waits for the
 * sandbox and returns None in a process of that, once the function was called with the arguments and the variables of the
 * process, each with its NUL, and returned true. Otherwise the process executes its program as a started one does. */
void spare_offer(void);

#endif
