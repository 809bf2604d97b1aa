/* The device nodes of the jails of a slot. */
#ifndef GLOVEBOX_DEVICES_H
#define GLOVEBOX_DEVICES_H

/* Nodes whose inodes belong to this slot alone, so that locks on them are not shared with the machine or other slots. */
#define DEVICES "/devices"

/* Mounts /dev of the image. Once in the life of a slot, after views_open. Returns 0, or -1 with fail_text. */
int devices_mount(void);

/* Mounts the same /dev at the root of a sandbox, in its jail. Returns 0, or -1 with fail_text. */
int devices_bind(void);

#endif
