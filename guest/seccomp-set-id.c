#include "seccomp-set-id.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "fail.h"

/* Newer than some kernel headers; the number is the same on every architecture. */
#ifndef SYS_fchmodat2
#define SYS_fchmodat2 452
#endif

/* Of O_TMPFILE, which glibc combines with O_DIRECTORY. */
#define CREATES_UNNAMED 020000000u

#define LOAD(field) BPF_STMT(BPF_LD | BPF_W | BPF_ABS, (uint32_t)(field))
#define ARGUMENT(index) LOAD(offsetof(struct seccomp_data, args) + (index) * 8)
#define ANSWER(action) BPF_STMT(BPF_RET | BPF_K, (action))

/* The kernel looks at the lower 16 bits of a mode only, which are in the lower half of the argument. */
#define CHECK_MODE(index)                                                                                              \
	ARGUMENT(index), BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, S_ISUID | S_ISGID, 0, 1),                                \
		ANSWER(SECCOMP_RET_ERRNO | EPERM), ANSWER(SECCOMP_RET_ALLOW)

/* Each is skipped unless the number, which is loaded, is that of the call. */
#define CALL_WITH_MODE(name, index) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_##name, 0, 4), CHECK_MODE(index)
/* Without a flag that creates a file, the mode is not an argument and can be anything. */
#define CALL_WITH_FLAGS(name, flags, index)                                                                            \
	BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_##name, 0, 7), ARGUMENT(flags),                                        \
		BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, O_CREAT | CREATES_UNNAMED, 1, 0), ANSWER(SECCOMP_RET_ALLOW),      \
		CHECK_MODE(index)

/* mkdir ignores these bits. Programs for other architectures are killed by the other filter. */
static struct sock_filter program[] = {
	LOAD(offsetof(struct seccomp_data, nr)),
#ifdef SYS_open
	CALL_WITH_FLAGS(open, 1, 2),
	CALL_WITH_MODE(creat, 1),
	CALL_WITH_MODE(chmod, 1),
	CALL_WITH_MODE(mknod, 1),
#endif
	CALL_WITH_FLAGS(openat, 2, 3),
	CALL_WITH_MODE(fchmod, 1),
	CALL_WITH_MODE(fchmodat, 2),
	CALL_WITH_MODE(fchmodat2, 2),
	CALL_WITH_MODE(mknodat, 2),
	/* Its mode lies in memory that a filter cannot read; programs use openat instead. */
	BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_openat2, 0, 1),
	ANSWER(SECCOMP_RET_ERRNO | ENOSYS),
	ANSWER(SECCOMP_RET_ALLOW),
};

int seccomp_forbid_set_id(void)
{
	struct sock_fprog filter = {.len = sizeof(program) / sizeof(program[0]), .filter = program};

	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
		return fail("no_new_privs");
	if (syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &filter) < 0)
		return fail("load the filter for set-user-ID bits");
	return 0;
}
