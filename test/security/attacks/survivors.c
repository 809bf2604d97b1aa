/* Leaves processes behind in every way there is, then ends as told: survivors TOKEN END
 *   END  exit: exits with 0; wait: never ends; signal: dies of SIGTERM; crash: of SIGSEGV; flood: prints without end;
 *        memory: takes memory without end
 * Each process that is left has TOKEN on its command line. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

static char block[65536];

static void ignore_everything(void)
{
	sigset_t all;

	for (int number = 1; number < NSIG; number++)
		signal(number, SIG_IGN);
	sigfillset(&all);
	sigprocmask(SIG_SETMASK, &all, NULL);
}

static void stay(void)
{
	alarm(0);
	for (;;)
		sleep(60);
}

/* Whether it goes on in the child. */
static int child(int *left)
{
	pid_t pid = fork();

	if (pid > 0)
		(*left)++;
	return pid == 0;
}

static void leave_detached(int *left)
{
	if (child(left)) {
		setsid();
		if (fork() != 0)
			_exit(0); /* the grandchild is nobody's */
		ignore_everything();
		stay();
	}
}

static void leave_stopped(int *left)
{
	if (child(left)) {
		setsid();
		raise(SIGSTOP);
		stay();
	}
}

static void leave_with_output(int *left)
{
	if (child(left)) {
		setsid();
		ignore_everything();
		for (;;) {
			if (write(1, ".", 1) < 0)
				sleep(1);
			usleep(50000);
		}
	}
}

static void leave_threads(int *left)
{
	static char stack[65536];

	if (child(left)) {
		setsid();
		ignore_everything();
		clone((int (*)(void *))(void *)stay, stack + sizeof(stack), CLONE_VM | CLONE_THREAD | CLONE_SIGHAND, NULL);
		stay();
	}
}

/* The parent waits in the kernel, as long as the child lives. */
static void leave_vfork(int *left)
{
	if (child(left)) {
		setsid();
		ignore_everything();
		if (vfork() == 0)
			for (;;)
				pause();
	}
}

/* Forks and ends, again and again: no pid of it lives long. For half a minute, for the sake of machines without the
 * wall. */
static void leave_runner(int *left)
{
	if (child(left)) {
		setsid();
		ignore_everything();
		for (int generation = 0; generation < 6000; generation++) {
			if (fork() > 0)
				_exit(0);
			usleep(5000);
		}
		_exit(0);
	}
}

static void end(const char *how)
{
	if (strcmp(how, "exit") == 0)
		_exit(0);
	if (strcmp(how, "signal") == 0)
		raise(SIGTERM);
	if (strcmp(how, "crash") == 0)
		*(volatile char *)8 = 1;
	if (strcmp(how, "flood") == 0)
		for (;;)
			if (write(1, block, sizeof(block)) < 0)
				pause();
	if (strcmp(how, "memory") == 0)
		for (;;) {
			char *p = mmap(NULL, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
			if (p != MAP_FAILED)
				memset(p, 1, 1 << 20);
		}
	ignore_everything();
	stay();
}

int main(int argc, char **argv)
{
	int left = 0;

	if (argc != 3)
		return 64;
	signal(SIGCHLD, SIG_DFL);
	leave_detached(&left);
	leave_stopped(&left);
	leave_with_output(&left);
	leave_threads(&left);
	leave_vfork(&left);
	leave_runner(&left);
	usleep(100000); /* they are on their way by now */
	printf("left %d\n", left);
	fflush(stdout);
	end(argv[2]);
}
