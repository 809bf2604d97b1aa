/* Forks as fast as it can, for ever, in every process; each process that cannot says so once on its first failure.
 * fork-bomb PROCESSES: at most so many in all, for a machine without the wall (0: without end). */
#define _GNU_SOURCE
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

int main(int argc, char **argv)
{
	int most = argc > 1 ? atoi(argv[1]) : 0;
	int told = 0;
	int *made = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	signal(SIGCHLD, SIG_IGN);
	for (;;) {
		if (most > 0 && __atomic_load_n(made, __ATOMIC_SEQ_CST) >= most)
			return 0;
		pid_t pid = fork();
		if (pid > 0 && most > 0 && __atomic_add_fetch(made, 1, __ATOMIC_SEQ_CST) == most)
			dprintf(1, "made %d\n", most);
		if (pid < 0 && !told++)
			dprintf(1, "%s\n", strerrorname_np(errno));
		if (pid == 0)
			setsid();
	}
}
