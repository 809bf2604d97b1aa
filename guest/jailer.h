/* The jailer: a child of the guest that clones the init of each jail. The runner moves it into the cgroup of runs before
 * the first jail, so that every process of a run starts under the limits of the run. (Moving a process later takes 10 ms
 * and more: the kernel waits for an RCU grace period.) The inits are children of the guest (CLONE_PARENT), which alone
 * reaps and kills. The jailer keeps no data of a run. */
#ifndef GLOVEBOX_JAILER_H
#define GLOVEBOX_JAILER_H

#include <stdbool.h>
#include <sys/types.h>

#include "jail.h"

struct jailer {
	pid_t pid;
	int socket;   /* the guest's end, non-blocking: sends requests, receives answers */
	bool is_gone; /* it died, and no further jail can be made */
};

/* Forks the jailer: after everything is set up that jails inherit, and before the guest holds any data of a run. Returns
 * 0, or -1 with fail_text. */
int jailer_start(struct jailer *jailer);

/* Requests a jail that is made from the data of the handover. One request at a time. Returns 0, or -1 with fail_text. */
int jailer_ask(const struct jailer *jailer, const struct child_fds *child_fds);

/* Requests that entries of the dock are attached in the mount namespace of a prewarmed jail: `dock` at `home`, `volumes` at
 * VOLUMES. NULL: none. Returns 0, or -1 with fail_text. */
int jailer_attach(const struct jailer *jailer, int mount_namespace, const char *dock, const char *volumes,
		  const char *home);

enum jailer_answer {
	JAILER_DONE,   /* `init` is the jail's init: a child of the guest; 0 when storage was to be attached */
	JAILER_LATER,  /* nothing yet */
	JAILER_FAILED, /* `text` says why */
	JAILER_GONE,   /* no answer will come any more */
};

enum jailer_answer jailer_answer(const struct jailer *jailer, pid_t *init, char text[FAIL_TEXT_BYTES]);

#endif
