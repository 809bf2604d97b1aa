#include "descriptors.h"

#include <limits.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "fail.h"

int descriptors_close_from(int lowest)
{
	/* Since Linux 5.9; sealing mounts (mounts.c) needs 5.12 anyway. */
	return syscall(SYS_close_range, (unsigned)lowest, UINT_MAX, 0) < 0 ? fail("close inherited descriptors") : 0;
}
