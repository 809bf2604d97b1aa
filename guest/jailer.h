/* The jailer: a child of the guest that clones the init of each jail. The runner has moved it into the cgroup of runs
 * before the first one, so that every process of a run is born under the run's limits. (Moving a process later, while
 * the run waits, costs 10 ms and more: the kernel waits for an RCU grace period.) What it clones is the guest's child,
 * not its own (CLONE_PARENT): the guest alone reaps and kills. It keeps nothing of a run. */
#ifndef GLOVEBOX_JAILER_H
#define GLOVEBOX_JAILER_H

#include <stdbool.h>
#include <sys/types.h>

#include "jail.h"

struct jailer {
	pid_t pid;
	int socket;   /* the guest's end: requests go in, answers come out; non-blocking */
	bool is_gone; /* it died; no further jail can be made */
};

/* Forks the jailer. After everything that jails inherit, before the guest holds anything else. Returns 0, or -1 with
 * fail_text. */
int jailer_start(struct jailer *jailer);

/* Asks for a jail made from what the handover holds. Returns 0, or -1 with fail_text. One request at a time. */
int jailer_ask(const struct jailer *jailer, const struct ends *ends);

/* Asks for the entry `dock` to be shown at `home`, and `volumes` where volumes are, in the mount namespace of a jail
 * whose run has not begun. NULL where there is none. */
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
