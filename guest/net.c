#include "net.h"

#include <fcntl.h>
#include <net/if.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "fail.h"

#define MAX_ENDED "512"

int net_loopback_up(void)
{
	struct ifreq request = {.ifr_name = "lo", .ifr_flags = IFF_UP | IFF_RUNNING};
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	if (fd < 0)
		return fail("a socket to bring lo up");
	int result = ioctl(fd, SIOCSIFFLAGS, &request);
	if (result < 0)
		fail("bring lo up");
	close(fd);
	return result;
}

int net_limit_ended(const char *proc)
{
	char path[64];

	snprintf(path, sizeof(path), "%s/sys/net/ipv4/tcp_max_tw_buckets", proc);
	int fd = open(path, O_WRONLY | O_CLOEXEC);
	if (fd < 0)
		return fail("open %s", path);
	int result = write(fd, MAX_ENDED, sizeof(MAX_ENDED) - 1) < 0 ? fail("write %s", path) : 0;
	close(fd);
	return result;
}
