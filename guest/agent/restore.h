/* Puts the files of a sandbox back as an earlier state of its disk has them. */
#ifndef GLOVEBOX_AGENT_RESTORE_H
#define GLOVEBOX_AGENT_RESTORE_H

/* `entry`: name of the directory of the place of earlier states with the disk as it was, read-only. Writes "RESTORED REMOVED FAILED\n" to standard
 * output, and the paths of the first failures, each with a newline. Needs the descriptors of sandbox.h and root of the sandbox. Returns 0, or
 * -1 with errno when nothing was changed. */
int restore_run(const char *entry);

#endif
