/* Preloaded into a program: writes a line to WAITS for each pause of it, and for each wait for descriptors that lasted until
 * its end. A program that retries after a while does one of both. Short ones, as those between two frames of a progress bar,
 * do not count. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <time.h>
#include <unistd.h>

#define PAUSE_MS 300
#define WAIT_MS 1000

static void count(const char *what, long long ms, long long least)
{
	const char *path = getenv("WAITS");
	char line[128];
	int kept = errno;
	int fd = ms < least || path == NULL ? -1 : open(path, O_WRONLY | O_CREAT | O_APPEND, 0666);

	if (fd >= 0) {
		int length = snprintf(line, sizeof(line), "%s %s for %lld ms\n", program_invocation_short_name, what, ms);
		if (write(fd, line, (size_t)length) < 0)
			abort();
		close(fd);
	}
	errno = kept;
}

static long long ms_of(const struct timespec *time)
{
	return time == NULL ? 0 : time->tv_sec * 1000LL + time->tv_nsec / 1000000;
}

int nanosleep(const struct timespec *time, struct timespec *left)
{
	count("pauses", ms_of(time), PAUSE_MS);
	return ((int (*)(const struct timespec *, struct timespec *))dlsym(RTLD_NEXT, "nanosleep"))(time, left);
}

int clock_nanosleep(clockid_t clock, int flags, const struct timespec *time, struct timespec *left)
{
	struct timespec now = {0};

	if ((flags & TIMER_ABSTIME) != 0)
		clock_gettime(clock, &now);
	count("pauses", ms_of(time) - ms_of(&now), PAUSE_MS);
	return ((int (*)(clockid_t, int, const struct timespec *, struct timespec *))dlsym(RTLD_NEXT, "clock_nanosleep"))(
		clock, flags, time, left);
}

unsigned sleep(unsigned seconds)
{
	count("pauses", seconds * 1000LL, PAUSE_MS);
	return ((unsigned (*)(unsigned))dlsym(RTLD_NEXT, "sleep"))(seconds);
}

int usleep(useconds_t us)
{
	count("pauses", us / 1000, PAUSE_MS);
	return ((int (*)(useconds_t))dlsym(RTLD_NEXT, "usleep"))(us);
}

int poll(struct pollfd *fds, nfds_t n, int ms)
{
	int ready = ((int (*)(struct pollfd *, nfds_t, int))dlsym(RTLD_NEXT, "poll"))(fds, n, ms);

	if (ready == 0)
		count("waits", ms, WAIT_MS);
	return ready;
}

int epoll_pwait(int fd, struct epoll_event *events, int n, int ms, const sigset_t *mask)
{
	int ready = ((int (*)(int, struct epoll_event *, int, int, const sigset_t *))dlsym(RTLD_NEXT, "epoll_pwait"))(
		fd, events, n, ms, mask);

	if (ready == 0)
		count("waits", ms, WAIT_MS);
	return ready;
}

int epoll_wait(int fd, struct epoll_event *events, int n, int ms)
{
	return epoll_pwait(fd, events, n, ms, NULL);
}

int select(int n, fd_set *in, fd_set *out, fd_set *other, struct timeval *time)
{
	long long ms = time == NULL ? 0 : time->tv_sec * 1000LL + time->tv_usec / 1000;
	int ready = ((int (*)(int, fd_set *, fd_set *, fd_set *, struct timeval *))dlsym(RTLD_NEXT, "select"))(n, in, out,
														other, time);
	if (ready == 0)
		count("waits", ms, WAIT_MS);
	return ready;
}
