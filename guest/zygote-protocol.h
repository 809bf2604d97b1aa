/* What the guest and a language host say to each other. A host is an interpreter that was started once and is forked
 * for each run; what is forked joins a jail that the jailer has made. Both sides are ours, and the host's lives before
 * any code of a run: nothing here is hostile input. */
#ifndef GLOVEBOX_ZYGOTE_PROTOCOL_H
#define GLOVEBOX_ZYGOTE_PROTOCOL_H

#include <stdint.h>
#include <sys/types.h>

#include "fail.h"

/* Where a host finds its end of the socket to the guest, and a descriptor of the slot's pid namespace. */
#define HOST_SOCKET 3
#define HOST_PID_NAMESPACE 4

/* Where a program finds the pipe that carries images. Below 64, so that it costs no table; above what programs and
 * shells number by hand. */
#define IMAGES 60

/* Descriptors beside a JOIN, in this order. */
enum join_descriptor {
	JOIN_IN,
	JOIN_OUT,
	JOIN_ERR,
	JOIN_IMAGES,
	JOIN_TALK, /* what is forked reports here, as the main process of a jail does, and is told its request */
	JOIN_PID,  /* namespaces of the jail */
	JOIN_MNT,
	JOIN_NET,
	JOIN_IPC,
	JOIN_UTS,
	JOIN_DESCRIPTORS,
};

/* To a host: fork, and let the child join. */
struct join {
	uint64_t open_files;
	uint64_t file_bytes;
	uint64_t pids;
	char home[1025];
};

enum host_word {
	HOST_READY = 1,  /* it has imported what it should */
	HOST_FORKED = 2, /* `pid` is the child, in the slot's pid namespace */
	HOST_FAILED = 3, /* no child: `text` */
	HOST_STATUS = 4, /* the child `pid` has ended: `status` */
};

/* From a host. */
struct host_report {
	uint8_t word;
	int32_t pid;
	int32_t status;
	char text[FAIL_TEXT_BYTES];
};

/* To what was forked: its standard input now carries so many bytes of variables (NAME=value, each with its NUL) and then
 * of source text. */
struct join_request {
	uint32_t env_bytes;
	uint32_t code_bytes;
	uint32_t has_storage; /* it lies at home since a moment ago */
};

#endif
