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

/* To the spare interpreter: its sandbox, with the descriptors of jail.h in their order. It forks when the agent sends a byte. The
 * child joins the sandbox, sends its pid there as an i32, and receives a request with the descriptors of a process. */
struct spare_join {
	uint64_t open_files;
	uint64_t file_bytes;
	uint64_t pids;
};

/* The order of the descriptors of a request. */
enum spare_descriptor { SPARE_IN, SPARE_OUT, SPARE_ERR, SPARE_CHANNEL, SPARE_FAILURE, SPARE_DESCRIPTORS };

/* To the child; the records of a SPAWN frame follow. */
struct spare_request {
	uint32_t bytes;      /* of the records */
	uint32_t args_bytes; /* of the arguments, each with a NUL */
	uint32_t env_bytes;  /* of the variables, HOME among them, each with a NUL */
};

/* Larger requests start an interpreter. */
#define SPARE_REQUEST_MAX_BYTES 65536u

#endif
