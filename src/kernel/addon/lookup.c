/* A BPF program that chooses the listener of a connection (https://docs.kernel.org/bpf/prog_sk_lookup.html, Linux 5.9). */
#define _GNU_SOURCE
#include "lookup.h"

#include <errno.h>
#include <netinet/in.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <linux/bpf.h>

enum { FOUR, SIX, LISTENERS };

#define INSTRUCTION(c, d, s, o, i) \
	((struct bpf_insn){.code = (c), .dst_reg = (d), .src_reg = (s), .off = (int16_t)(o), .imm = (int32_t)(i)})
#define LOAD_FIELD(d, field) \
	INSTRUCTION(BPF_LDX | BPF_MEM | BPF_W, d, BPF_REG_6, offsetof(struct bpf_sk_lookup, field), 0)
#define LOAD_FIELD_AT(d, field, at) \
	INSTRUCTION(BPF_LDX | BPF_MEM | BPF_W, d, BPF_REG_6, offsetof(struct bpf_sk_lookup, field) + (at), 0)
#define MOVE(d, s) INSTRUCTION(BPF_ALU64 | BPF_MOV | BPF_X, d, s, 0, 0)
#define SET(d, value) INSTRUCTION(BPF_ALU64 | BPF_MOV | BPF_K, d, 0, 0, value)
#define JUMP(condition, d, value, by) INSTRUCTION(BPF_JMP | (condition) | BPF_K, d, 0, by, value)
#define CALL(function) INSTRUCTION(BPF_JMP | BPF_CALL, 0, 0, 0, function)
#define EXIT INSTRUCTION(BPF_JMP | BPF_EXIT, 0, 0, 0, 0)

static int bpf(int command, union bpf_attr *attributes)
{
	return (int)syscall(SYS_bpf, command, attributes, sizeof(*attributes));
}

static int make_map(int four, int six)
{
	union bpf_attr create = {
		.map_type = BPF_MAP_TYPE_SOCKMAP, .key_size = 4, .value_size = 8, .max_entries = LISTENERS};
	const int listeners[LISTENERS] = {four, six};
	int map = bpf(BPF_MAP_CREATE, &create);

	for (uint32_t key = 0; map >= 0 && key < LISTENERS; key++) {
		uint64_t value = (uint64_t)listeners[key];
		union bpf_attr update = {
			.map_fd = (uint32_t)map, .key = (uint64_t)(uintptr_t)&key, .value = (uint64_t)(uintptr_t)&value};

		if (listeners[key] >= 0 && bpf(BPF_MAP_UPDATE_ELEM, &update) < 0) {
			int error = errno;
			close(map);
			errno = error;
			return -1;
		}
	}
	return map;
}

/* Passes what goes to loopback, and what is not TCP, to the usual lookup; everything else to a listener of its family. */
static int load_program(int map)
{
	const struct bpf_insn program[] = {
		MOVE(BPF_REG_6, BPF_REG_1),
		LOAD_FIELD(BPF_REG_2, protocol),
		JUMP(BPF_JNE, BPF_REG_2, 6, 35), /* TCP */
		LOAD_FIELD(BPF_REG_2, family),
		JUMP(BPF_JEQ, BPF_REG_2, AF_INET6, 5),
		/* IPv4: the first byte in memory, whatever the order of the machine, is that of the network. */
		LOAD_FIELD(BPF_REG_2, local_ip4),
		INSTRUCTION(BPF_ALU | BPF_END | BPF_TO_BE, BPF_REG_2, 0, 0, 32),
		INSTRUCTION(BPF_ALU | BPF_RSH | BPF_K, BPF_REG_2, 0, 0, 24),
		JUMP(BPF_JEQ, BPF_REG_2, 127, 29),
		INSTRUCTION(BPF_JMP | BPF_JA, 0, 0, 8, 0),
		/* IPv6: ::1 */
		LOAD_FIELD_AT(BPF_REG_2, local_ip6, 0),
		JUMP(BPF_JNE, BPF_REG_2, 0, 6),
		LOAD_FIELD_AT(BPF_REG_2, local_ip6, 4),
		JUMP(BPF_JNE, BPF_REG_2, 0, 4),
		LOAD_FIELD_AT(BPF_REG_2, local_ip6, 8),
		JUMP(BPF_JNE, BPF_REG_2, 0, 2),
		LOAD_FIELD_AT(BPF_REG_2, local_ip6, 12),
		JUMP(BPF_JEQ, BPF_REG_2, (int32_t)htonl(1), 20),
		/* The key: 0 for IPv4, 1 for IPv6. */
		LOAD_FIELD(BPF_REG_2, family),
		SET(BPF_REG_3, FOUR),
		JUMP(BPF_JNE, BPF_REG_2, AF_INET6, 1),
		SET(BPF_REG_3, SIX),
		INSTRUCTION(BPF_STX | BPF_MEM | BPF_W, BPF_REG_10, BPF_REG_3, -4, 0),
		INSTRUCTION(BPF_LD | BPF_DW | BPF_IMM, BPF_REG_1, BPF_PSEUDO_MAP_FD, 0, map),
		INSTRUCTION(0, 0, 0, 0, 0),
		MOVE(BPF_REG_2, BPF_REG_10),
		INSTRUCTION(BPF_ALU64 | BPF_ADD | BPF_K, BPF_REG_2, 0, 0, -4),
		CALL(BPF_FUNC_map_lookup_elem),
		JUMP(BPF_JNE, BPF_REG_0, 0, 2),
		SET(BPF_REG_0, SK_DROP),
		EXIT,
		/* Found. */
		MOVE(BPF_REG_7, BPF_REG_0),
		MOVE(BPF_REG_1, BPF_REG_6),
		MOVE(BPF_REG_2, BPF_REG_0),
		SET(BPF_REG_3, 0),
		CALL(BPF_FUNC_sk_assign),
		MOVE(BPF_REG_1, BPF_REG_7),
		CALL(BPF_FUNC_sk_release),
		SET(BPF_REG_0, SK_PASS),
		EXIT,
	};
	union bpf_attr load = {
		.prog_type = BPF_PROG_TYPE_SK_LOOKUP,
		.expected_attach_type = BPF_SK_LOOKUP,
		.insns = (uint64_t)(uintptr_t)program,
		.insn_cnt = sizeof(program) / sizeof(program[0]),
		.license = (uint64_t)(uintptr_t)"MIT",
	};

	return bpf(BPF_PROG_LOAD, &load);
}

int lookup_attach(int namespace, int four, int six)
{
	int map = make_map(four, six);

	if (map < 0)
		return -1;
	int program = load_program(map);
	int error = errno;
	close(map); /* the program keeps it */
	if (program < 0) {
		errno = error;
		return -1;
	}
	union bpf_attr link = {.link_create = {.prog_fd = (uint32_t)program,
					       .target_fd = (uint32_t)namespace,
					       .attach_type = BPF_SK_LOOKUP}};
	int made = bpf(BPF_LINK_CREATE, &link);
	error = errno;
	close(program); /* the link keeps it */
	errno = error;
	return made;
}
