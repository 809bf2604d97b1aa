#include "descriptors.h"

#include <errno.h>
#include <limits.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "fail.h"

int descriptors_close_from(int lowest)
{
	struct rlimit limit;

	if (syscall(SYS_close_range, (unsigned)lowest, UINT_MAX, 0) == 0)
		return 0;
	if (errno != ENOSYS)
		return fail("close inherited descriptors");
	/* Where close_range is missing (gVisor, Linux before 5.9): none can be open beyond the hard limit. */
	if (getrlimit(RLIMIT_NOFILE, &limit) < 0)
		return fail("read RLIMIT_NOFILE");
	for (rlim_t fd = (rlim_t)lowest; fd < limit.rlim_max && fd < INT_MAX; fd++)
		close((int)fd);
	return 0;
}
