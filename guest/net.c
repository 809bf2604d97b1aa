#include "net.h"

#include <net/if.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "fail.h"

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
