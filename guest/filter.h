/* A BPF program in the making: the words in which the system call filter is written. */
#ifndef GLOVEBOX_FILTER_H
#define GLOVEBOX_FILTER_H

#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdint.h>

/* How many instructions there are so far; may pass BPF_MAXINSNS, beyond which none is kept. */
size_t filter_length(void);

struct sock_filter *filter_program(void);

void filter_emit(uint16_t code, uint32_t value, uint8_t jump_true, uint8_t jump_false);

/* Ends the filter with a verdict: SECCOMP_RET_*. */
void filter_answer(uint32_t verdict);

/* Ends the filter: the call fails with this error; 0: it seems to succeed. */
void filter_answer_error(int error);

/* Loads the low half of an argument of the call, and only that: every argument that is looked at is 32 bits wide to the
 * kernel, which ignores the rest, and so must the filter. */
void filter_load_argument(unsigned index);

/* Answers when the loaded word equals `value`. */
void filter_if_equal(uint32_t value, uint32_t verdict);

/* Answers when the loaded word is at least `first` and less than `end`. */
void filter_answer_range(uint32_t first, uint32_t end, uint32_t verdict);

/* Allows the call when the loaded word is in a set of small numbers: bit N of masks[W] stands for the value 32 * W + N.
 * For every other word the filter continues behind it, and the loaded word is lost. A set costs eight instructions for
 * each 32 values of its range, however many it holds. */
void filter_allow_small(const uint32_t *masks, size_t words);

/* Opens a part that runs when the loaded word equals `value`; it ends with an answer, and then filter_end_part. */
size_t filter_begin_part(uint32_t value);
void filter_end_part(size_t begin);

/* A jump to a place that is not known yet, and its place. */
size_t filter_jump(void);
void filter_land(size_t jump);

#define FILTER_REFUSE(error) (SECCOMP_RET_ERRNO | (uint32_t)(error))

#endif
