#include "binds.h"

#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "fail.h"

int binds_add(const char *from, const char *to)
{
	return mount(from, to, NULL, MS_BIND, NULL) < 0 ? fail("bind %s to %s", from, to) : 0;
}

int binds_seal(const char *path, unsigned how, uint64_t flags)
{
	struct mount_attr sealed = {.attr_set = flags};

	/* Since Linux 5.12, and the only call that surely reaches every mount of a tree. */
	if (syscall(SYS_mount_setattr, AT_FDCWD, path, how, &sealed, sizeof(sealed)) < 0)
		return fail("seal %s (mount_setattr)", path);
	return 0;
}
