/* The jail's own /proc: its processes, and of the machine only what programs need. */
#ifndef GLOVEBOX_PROC_H
#define GLOVEBOX_PROC_H

/* Each returns 0, or -1 with fail_text. */

/* Once, when the slot starts: finds which of the entries that are hidden this kernel has. */
int proc_choose_masks(void);

/* In the jail's init, with the image not yet the root: mounts and masks. */
int proc_mount(void);

#endif
