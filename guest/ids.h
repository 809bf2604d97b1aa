/* Who a jail's processes are and how much one of them may have. */
#ifndef GLOVEBOX_IDS_H
#define GLOVEBOX_IDS_H

#include <stdbool.h>
#include <sys/types.h>

#include "prepare.h"

/* The user and group of every program in a jail. */
#define JAIL_UID 1000u
#define JAIL_GID 1000u

/* Each returns 0, or -1 with fail_text. */

/* Sets the rlimits of the caller. */
int ids_limit(const struct preparation *preparation);

/* Those of them that are the same everywhere. */
int ids_limit_fixed(void);

/* Makes the caller the kernel's choice before the guest, its jailer and the jail's init when memory is short. */
int ids_offer_to_oom_killer(void);

/* Makes the capabilities that zygotes and root in sandboxes have inheritable across exec. Before the bounding set is emptied; a
 * process that becomes the program of a user drops these as well (ids_drop_capabilities). */
int ids_keep_inheritable(void);

/* In a zygote, before its exec: it inherits those that it needs to join a jail, and no others; the spare interpreter also those that
 * root has in a sandbox. */
int ids_become_zygote(bool is_spare);

/* Empties the bounding and ambient sets of the caller and all its children to come, so that no exec can ever bring a
 * capability; those it has stay. Needs CAP_SETPCAP. */
int ids_bound_capabilities(void);

/* Empties the permitted, effective and inheritable sets. */
int ids_drop_capabilities(void);

/* Keeps the capabilities of root in a sandbox (sandbox_capabilities in ids.c) and no others; programs that root executes have
 * the same. */
int ids_become_sandbox_root(void);

/* Becomes JAIL_UID and JAIL_GID, without further groups and without capabilities. */
int ids_become_user(void);

#endif
