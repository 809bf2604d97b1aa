#include "seccomp-actions.h"

#include <asm/termbits.h>
#include <fcntl.h>
#include <linux/falloc.h>
#include <linux/fiemap.h>
#include <linux/fs.h>
#include <linux/random.h>
#include <linux/sockios.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include "filter.h"

void allow(void)
{
	filter_answer(SECCOMP_RET_ALLOW);
}

void nothing(void)
{
	filter_answer_error(0);
}

void eperm(void)
{
	filter_answer_error(EPERM);
}

void missing(void)
{
	filter_answer_error(ENOSYS);
}

/* No namespaces, and no sibling: CLONE_PARENT would make a child of the process that waits for the main process, which then
 * finds a process to reap that it does not know. */
void check_clone(void)
{
	const uint32_t refused = CLONE_NEWNS | CLONE_NEWCGROUP | CLONE_NEWUTS | CLONE_NEWIPC | CLONE_NEWUSER |
				 CLONE_NEWPID | CLONE_NEWNET | CLONE_PARENT;

	filter_load_argument(0);
	filter_emit(BPF_JMP | BPF_JSET | BPF_K, refused, 0, 1);
	filter_answer_error(EPERM);
	filter_answer(SECCOMP_RET_ALLOW);
}

/* Requests of terminals and of every open file, and of sockets (interfaces, without what needs a privilege anyway). */
#define TERMINAL_FIRST 0x5400u
#define TERMINAL_END 0x5480u
#define SOCKET_FIRST 0x8900u
#define SOCKET_END 0x8980u

/* TIOCSTI types into a terminal, TIOCLINUX pastes into a console, TIOCSETD loads a line discipline by its number.
 * Requests that change a file behind its times and its quota (EXT4_IOC_MOVE_EXT, FS_IOC_SETFLAGS and others of
 * filesystems) are not in the list, nor is what drivers may add. */
void check_ioctl(void)
{
	static const uint32_t harmless[] = {
		TIOCGPTN, TIOCSPTLCK, TIOCGPTLCK, TIOCGPKT, TIOCGEXCL, TIOCGDEV, /* pseudo-terminals */
		TCGETS2, TCSETS2, TCSETSW2, TCSETSF2,
		FIGETBSZ, FS_IOC_GETFLAGS, FS_IOC_GETVERSION, FS_IOC_FSGETXATTR, FS_IOC_FIEMAP, /* what lsattr and cp read */
		FICLONE, FICLONERANGE, FIDEDUPERANGE,
		RNDGETENTCNT,
		SIOCGSTAMP_NEW, SIOCGSTAMPNS_NEW,
	};

	filter_load_argument(1);
	filter_if_equal(TIOCSTI, FILTER_REFUSE(EPERM));
	filter_if_equal(TIOCLINUX, FILTER_REFUSE(EPERM));
	filter_if_equal(TIOCSETD, FILTER_REFUSE(EPERM));
	filter_answer_range(TERMINAL_FIRST, TERMINAL_END, SECCOMP_RET_ALLOW);
	filter_answer_range(SOCKET_FIRST, SOCKET_END, SECCOMP_RET_ALLOW);
	for (size_t i = 0; i < sizeof(harmless) / sizeof(harmless[0]); i++)
		filter_if_equal(harmless[i], SECCOMP_RET_ALLOW);
	filter_answer_error(ENOTTY);
}

/* Inserting and collapsing ranges moves what a file holds past RLIMIT_FSIZE, which the kernel asks about neither. The
 * error is that of a filesystem which cannot. */
void check_fallocate(void)
{
	static const uint32_t modes[] = {
		0, FALLOC_FL_KEEP_SIZE, FALLOC_FL_KEEP_SIZE | FALLOC_FL_PUNCH_HOLE, FALLOC_FL_ZERO_RANGE,
		FALLOC_FL_ZERO_RANGE | FALLOC_FL_KEEP_SIZE,
	};

	filter_load_argument(1);
	for (size_t i = 0; i < sizeof(modes) / sizeof(modes[0]); i++)
		filter_if_equal(modes[i], SECCOMP_RET_ALLOW);
	filter_answer_error(EOPNOTSUPP);
}

/* Dropping a shared file's pages and looking later whether they are back shows which programs others start. It is
 * advice: the answer is success, and the kernel drops pages when it needs to. */
void check_fadvise(void)
{
	filter_load_argument(3);
	filter_if_equal(POSIX_FADV_DONTNEED, FILTER_REFUSE(0));
	filter_answer(SECCOMP_RET_ALLOW);
}

/* Paging out is the same for mapped files. Merging equal pages (KSM) shows what others hold; the error is that of a
 * kernel without it. */
void check_madvise(void)
{
	filter_load_argument(2);
	filter_if_equal(MADV_PAGEOUT, FILTER_REFUSE(0));
	filter_if_equal(MADV_COLD, FILTER_REFUSE(0));
	filter_if_equal(MADV_MERGEABLE, FILTER_REFUSE(EINVAL));
	filter_answer(SECCOMP_RET_ALLOW);
}

static void check_flag(unsigned index, uint32_t flag, int error)
{
	filter_load_argument(index);
	filter_emit(BPF_JMP | BPF_JSET | BPF_K, flag, 0, 1);
	filter_answer_error(error);
	filter_answer(SECCOMP_RET_ALLOW);
}

/* Huge pages that a machine has set aside are counted by no memory limit, and anybody may map them. The errors are
 * those of a machine that has none. */
void check_mmap(void)
{
	check_flag(3, MAP_HUGETLB, ENOMEM);
}

void check_memfd_create(void)
{
	check_flag(1, MFD_HUGETLB, ENOSYS);
}

static void check_mode(unsigned index)
{
	filter_load_argument(index);
	filter_emit(BPF_ALU | BPF_AND | BPF_K, S_IFMT, 0, 0);
	filter_if_equal(S_IFCHR, FILTER_REFUSE(EPERM));
	filter_if_equal(S_IFBLK, FILTER_REFUSE(EPERM));
	filter_answer(SECCOMP_RET_ALLOW);
}

void check_mknod(void)
{
	check_mode(1);
}

void check_mknodat(void)
{
	check_mode(2);
}

/* The values a container of Docker has, plus ADDR_NO_RANDOMIZE, which weakens only the caller and which sanitizers
 * ask for. 0xffffffff only reads. */
void check_personality(void)
{
	static const uint32_t harmless[] = {0x0, 0x8, 0x20000, 0x20008, 0x40000, 0xffffffff};

	filter_load_argument(0);
	for (size_t i = 0; i < sizeof(harmless) / sizeof(harmless[0]); i++)
		filter_if_equal(harmless[i], SECCOMP_RET_ALLOW);
	filter_answer_error(EPERM);
}

/* What acts on the caller alone. Left out, among others: PR_SET_MM, PR_SCHED_CORE, PR_SET_PTRACER. */
void check_prctl(void)
{
	static const uint32_t harmless[] = {
		PR_SET_PDEATHSIG, PR_GET_PDEATHSIG, PR_GET_DUMPABLE, PR_SET_DUMPABLE, PR_GET_KEEPCAPS,
		PR_SET_KEEPCAPS, PR_SET_NAME, PR_GET_NAME, PR_GET_SECCOMP, PR_CAPBSET_READ,
		PR_CAPBSET_DROP, PR_GET_TSC, PR_GET_SECUREBITS, PR_SET_TIMERSLACK, PR_GET_TIMERSLACK,
		PR_SET_CHILD_SUBREAPER, PR_GET_CHILD_SUBREAPER, PR_SET_NO_NEW_PRIVS, PR_GET_NO_NEW_PRIVS,
		PR_GET_TID_ADDRESS, PR_SET_THP_DISABLE, PR_GET_THP_DISABLE, PR_CAP_AMBIENT, PR_SVE_SET_VL,
		PR_SVE_GET_VL, PR_GET_SPECULATION_CTRL, PR_SET_SPECULATION_CTRL, PR_PAC_RESET_KEYS,
		PR_SET_TAGGED_ADDR_CTRL, PR_GET_TAGGED_ADDR_CTRL, PR_SET_VMA,
	};

	filter_load_argument(0);
	for (size_t i = 0; i < sizeof(harmless) / sizeof(harmless[0]); i++)
		filter_if_equal(harmless[i], SECCOMP_RET_ALLOW);
	size_t seccomp = filter_begin_part(PR_SET_SECCOMP);
	filter_load_argument(1);
	filter_if_equal(SECCOMP_MODE_STRICT, SECCOMP_RET_ALLOW);
	filter_answer_error(EINVAL);
	filter_end_part(seccomp);
	filter_answer_error(EINVAL);
}

/* As on a kernel that is built without filters. */
void check_seccomp(void)
{
	filter_load_argument(0);
	filter_if_equal(SECCOMP_SET_MODE_STRICT, SECCOMP_RET_ALLOW);
	filter_answer_error(EINVAL);
}
