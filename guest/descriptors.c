#include "descriptors.h"

#include <limits.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "fail.h"

/* Since Linux 5.9; sealing mounts (mounts.c) needs 5.12 anyway. */
static int close_range_of(unsigned first, unsigned last)
{
	return syscall(SYS_close_range, first, last, 0) < 0 ? fail("close inherited descriptors") : 0;
}

int descriptors_close_from(int lowest)
{
	return close_range_of((unsigned)lowest, UINT_MAX);
}

int descriptors_close_from_but(int lowest, int first, int last)
{
	return close_range_of((unsigned)lowest, (unsigned)first - 1) < 0 ? -1 : descriptors_close_from(last + 1);
}
