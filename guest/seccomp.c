#include "seccomp.h"

#include <errno.h>
#include <linux/audit.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "fail.h"
#include "filter.h"
#include "seccomp-actions.h"

#if defined(__x86_64__)
#define NATIVE_ARCH AUDIT_ARCH_X86_64
#elif defined(__aarch64__)
#define NATIVE_ARCH AUDIT_ARCH_AARCH64
#else
#error "the system call table knows x86-64 and aarch64"
#endif

/* Newer than some kernel headers; the number is the same on every architecture. */
#ifndef SYS_fchmodat2
#define SYS_fchmodat2 452
#endif

struct call {
	uint32_t number;
	void (*action)(void); /* of seccomp-actions.h */
};

#define GROUP(reason)
#define CALL(action, name) {SYS_##name, action},
#if defined(__x86_64__)
#define OLD_CALL(action, name) CALL(action, name)
#else
#define OLD_CALL(action, name)
#endif
static struct call table[] = {
#include "seccomp-table.h"
};
#define CALLS (sizeof(table) / sizeof(table[0]))

/* Neighbouring numbers with one action; the gaps between calls are runs of `missing`. */
static struct call spans[2 * CALLS + 2];
static size_t span_count;

/* Jumps out of the search tree that wait to learn where the part of an action begins. */
static struct {
	size_t jump;
	void (*action)(void);
} pending[2 * CALLS + 2];
static size_t pending_count;

static int by_number(const void *left, const void *right)
{
	uint32_t a = ((const struct call *)left)->number;
	uint32_t b = ((const struct call *)right)->number;

	return a < b ? -1 : a > b;
}

static void begin_span(uint32_t number, void (*action)(void))
{
	if (span_count > 0 && spans[span_count - 1].action == action)
		return;
	spans[span_count++] = (struct call){number, action};
}

/* x32's calls (numbers with bit 30) lie beyond the last span's start and are `missing` like all above it. */
static int find_spans(void)
{
	qsort(table, CALLS, sizeof(table[0]), by_number);
	begin_span(0, table[0].number == 0 ? table[0].action : missing);
	for (size_t i = 0; i < CALLS; i++) {
		if (i > 0 && table[i].number == table[i - 1].number) {
			errno = EEXIST;
			return fail("system call %u is in the table twice", table[i].number);
		}
		begin_span(table[i].number, table[i].action);
		if (i + 1 == CALLS || table[i + 1].number != table[i].number + 1)
			begin_span(table[i].number + 1, missing);
	}
	return 0;
}

/* A search tree over [low, high): about 7 comparisons instead of 300, also while the kernel works out, at load time,
 * which numbers it may wave through (its action cache, since 5.11). */
static void write_tree(size_t low, size_t high)
{
	if (high - low == 1) {
		pending[pending_count].jump = filter_jump();
		pending[pending_count++].action = spans[low].action;
		return;
	}
	size_t middle = low + (high - low) / 2;
	filter_emit(BPF_JMP | BPF_JGE | BPF_K, spans[middle].number, 0, 1);
	size_t to_upper = filter_jump();
	write_tree(low, middle);
	filter_land(to_upper);
	write_tree(middle, high);
}

/* Each action once, behind the tree. */
static void write_actions(void)
{
	for (size_t i = 0; i < pending_count; i++) {
		void (*action)(void) = pending[i].action;
		if (action == NULL)
			continue;
		for (size_t j = i; j < pending_count; j++) {
			if (pending[j].action != action)
				continue;
			filter_land(pending[j].jump);
			pending[j].action = NULL;
		}
		action();
	}
}

int seccomp_build(void)
{
	if (find_spans() < 0)
		return -1;
	filter_emit(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, arch), 0, 0);
	filter_emit(BPF_JMP | BPF_JEQ | BPF_K, NATIVE_ARCH, 1, 0);
	filter_answer(SECCOMP_RET_KILL_PROCESS);
	filter_emit(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr), 0, 0);
	write_tree(0, span_count);
	write_actions();
	if (filter_length() > BPF_MAXINSNS) {
		errno = E2BIG;
		return fail("the system call filter");
	}
	return 0;
}

int seccomp_load(void)
{
	struct sock_fprog filter = {.len = (unsigned short)filter_length(), .filter = filter_program()};

	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
		return fail("no_new_privs");
	if (syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &filter) < 0)
		return fail("load the system call filter");
	return 0;
}
