/* The protocol between the guest and a zygote: an interpreter that is started once and forked for each run. The child
 * joins a jail that the jailer has made. Both sides are trusted: the zygote never executes code of a run. */
#ifndef GLOVEBOX_ZYGOTE_PROTOCOL_H
#define GLOVEBOX_ZYGOTE_PROTOCOL_H

#include <stdint.h>
#include <sys/types.h>

#include "fail.h"

/* Descriptors of a zygote: its end of the socket to the guest, and the pid namespace of the slot. */
#define ZYGOTE_SOCKET 3
#define ZYGOTE_PID_NAMESPACE 4

/* The descriptor of a program for pictures. Below 64, so that the descriptor table need not grow; above the numbers that
 * programs and shells choose by hand. */
#define PICTURES_FD 60

/* The order of the descriptors of a join message. */
enum join_descriptor {
	JOIN_IN,
	JOIN_OUT,
	JOIN_ERR,
	JOIN_PICTURES,
	JOIN_CONTROL, /* the child sends its reports and receives its request */
	JOIN_PID,  /* namespaces of the jail */
	JOIN_MNT,
	JOIN_NET,
	JOIN_IPC,
	JOIN_UTS,
	JOIN_DESCRIPTORS,
};

/* To the zygote: fork a child that joins a jail. */
struct join {
	uint64_t open_files;
	uint64_t file_bytes;
	uint64_t pids;
	char home[1025];
};

enum zygote_word {
	ZYGOTE_READY = 1,  /* all modules are imported */
	ZYGOTE_FORKED = 2, /* `pid` is the child, in the pid namespace of the slot */
	ZYGOTE_FAILED = 3, /* no child: `text` has the reason */
	ZYGOTE_STATUS = 4, /* the child `pid` has ended: `status` */
};

/* From the zygote. */
struct zygote_report {
	uint8_t word;
	int32_t pid;
	int32_t status;
	char text[FAIL_TEXT_BYTES];
};

/* To the child: its CODE_FILE is written, and its standard input carries this many bytes of variables (NAME=value, each with
 * its NUL), and then what the program reads. */
struct run_request {
	uint32_t env_bytes;
	uint32_t has_storage; /* it was attached at the home directory after the fork */
};

#endif
