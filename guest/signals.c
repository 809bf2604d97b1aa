#include "signals.h"

#include <signal.h>
#include <stddef.h>

#include "fail.h"

int signals_reset(void)
{
	sigset_t none;

	sigemptyset(&none);
	for (int number = 1; number < NSIG; number++)
		signal(number, SIG_DFL); /* KILL, STOP and the C library's own two refuse, and are default anyway */
	return sigprocmask(SIG_SETMASK, &none, NULL) < 0 ? fail("unblock signals") : 0;
}
