#include "filter.h"

static struct sock_filter program[BPF_MAXINSNS];
static size_t length;

size_t filter_length(void)
{
	return length;
}

struct sock_filter *filter_program(void)
{
	return program;
}

void filter_emit(uint16_t code, uint32_t value, uint8_t jump_true, uint8_t jump_false)
{
	if (length < BPF_MAXINSNS)
		program[length] = (struct sock_filter){code, jump_true, jump_false, value};
	length++; /* beyond the end, which seccomp_build refuses */
}

void filter_answer(uint32_t verdict)
{
	filter_emit(BPF_RET | BPF_K, verdict, 0, 0);
}

void filter_answer_error(int error)
{
	filter_answer(SECCOMP_RET_ERRNO | (uint32_t)error);
}

/* Both architectures are little-endian: the low half comes first. */
void filter_load_argument(unsigned index)
{
	filter_emit(BPF_LD | BPF_W | BPF_ABS, (uint32_t)(offsetof(struct seccomp_data, args) + index * 8), 0, 0);
}

void filter_if_equal(uint32_t value, uint32_t verdict)
{
	filter_emit(BPF_JMP | BPF_JEQ | BPF_K, value, 0, 1);
	filter_answer(verdict);
}

void filter_answer_range(uint32_t first, uint32_t end, uint32_t verdict)
{
	filter_emit(BPF_JMP | BPF_JGE | BPF_K, first, 0, 2);
	filter_emit(BPF_JMP | BPF_JGE | BPF_K, end, 1, 0);
	filter_answer(verdict);
}

void filter_allow_small(const uint32_t *masks, size_t words)
{
	for (size_t word = 0; word < words; word++) {
		filter_emit(BPF_JMP | BPF_JGE | BPF_K, 32, 6, 0);
		filter_emit(BPF_MISC | BPF_TAX, 0, 0, 0);
		filter_emit(BPF_LD | BPF_W | BPF_IMM, masks[word], 0, 0);
		filter_emit(BPF_ALU | BPF_RSH | BPF_X, 0, 0, 0);
		filter_emit(BPF_JMP | BPF_JSET | BPF_K, 1, 0, 1);
		filter_answer(SECCOMP_RET_ALLOW);
		/* A small word that is not in the set is out of the range of all that follow. */
		filter_emit(BPF_LD | BPF_W | BPF_IMM, UINT32_MAX, 0, 0);
		filter_emit(BPF_ALU | BPF_SUB | BPF_K, 32, 0, 0);
	}
}

size_t filter_begin_part(uint32_t value)
{
	filter_emit(BPF_JMP | BPF_JEQ | BPF_K, value, 0, 0);
	return length - 1;
}

void filter_end_part(size_t begin)
{
	if (begin < BPF_MAXINSNS)
		program[begin].jf = (uint8_t)(length - begin - 1);
}

size_t filter_jump(void)
{
	filter_emit(BPF_JMP | BPF_JA, 0, 0, 0);
	return length - 1;
}

void filter_land(size_t jump)
{
	if (jump < BPF_MAXINSNS)
		program[jump].k = (uint32_t)(length - jump - 1);
}
