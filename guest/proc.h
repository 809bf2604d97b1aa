/* The procfs of a jail: its processes, and only those files about the machine that programs need. */
#ifndef GLOVEBOX_PROC_H
#define GLOVEBOX_PROC_H

/* Each returns 0, or -1 with fail_text. */

/* Once per slot: finds the hidden entries that this kernel has. */
int proc_choose_masks(void);

/* In the init of a jail, before the image is the root: mounts procfs and masks entries. */
int proc_mount(void);

#endif
