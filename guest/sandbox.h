/* The jail of a sandbox: its root is writable and kept on a disk, and its init is the agent, which starts processes on request. */
#ifndef GLOVEBOX_SANDBOX_H
#define GLOVEBOX_SANDBOX_H

#include "overlays.h"
#include "prepare.h"

/* Descriptors that only the agent and its restoration of files have, close-on-exec: the place of earlier states of the
 * disk, the disk, and the parts of the image that exist. */
#define SANDBOX_STATES 61
#define SANDBOX_DISK 62
#define SANDBOX_TOP 63
#define SANDBOX_PARTS 64
#define SANDBOX_LAST (SANDBOX_PARTS + OVERLAY_PARTS - 1)

/* The socket to the spare interpreter, which the agent alone has. */
#define SANDBOX_SPARE (SANDBOX_LAST + 1)

/* In the init of the jail: mounts its root and makes it the root. Returns 0, or -1 with fail_text. */
int sandbox_enter(const struct preparation *preparation);

#endif
