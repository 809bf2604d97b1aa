/* The agent of a sandbox: init of its jail. Starts processes inside on request, and transports their input and output.
 * It has no more rights than root of the sandbox, so nothing that it is made to do harms anything else. */
#ifndef GLOVEBOX_AGENT_H
#define GLOVEBOX_AGENT_H

#include "../prepare.h"

/* Reads frames from standard input and writes frames to standard output until standard input ends. */
_Noreturn void agent_serve(const struct preparation *preparation);

#endif
