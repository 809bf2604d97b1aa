/* A second filter for sandboxes that share files with users of the machine. */
#ifndef GLOVEBOX_SECCOMP_SET_ID_H
#define GLOVEBOX_SECCOMP_SET_ID_H

/* Refuses to set the set-user-ID or set-group-ID bit of a file, permanently for the caller and its children. Must be called
 * before seccomp_load, which permits no further filter. Returns 0, or -1 with fail_text. */
int seccomp_forbid_set_id(void);

#endif
