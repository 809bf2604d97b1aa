/* The frames between the agent of a sandbox and the runner, inside standard input and output of its run. PROTOCOL.md
 * describes them. Their format is that of the guest; the number of a frame is that of a process. */
#ifndef GLOVEBOX_AGENT_PROTOCOL_H
#define GLOVEBOX_AGENT_PROTOCOL_H

enum agent_frame_kind {
	AGENT_SPAWN = 1,
	AGENT_INPUT = 2,
	AGENT_INPUT_END = 3,
	AGENT_CHANNEL = 4,
	AGENT_CHANNEL_END = 5,
	AGENT_CREDIT = 6,
	AGENT_CHANNEL_CREDIT = 7,
	AGENT_SIGNAL = 8,
	AGENT_RESIZE = 9,

	AGENT_STARTED = 64,
	AGENT_NOT_STARTED = 65,
	AGENT_STDOUT = 66,
	AGENT_STDERR = 67,
	AGENT_FROM_CHANNEL = 68,
	AGENT_INPUT_ROOM = 69,
	AGENT_CHANNEL_ROOM = 70,
	AGENT_ENDED = 71,
};

/* Input of one process, and the same of its channel, that the runner may send before it learns that it was taken. */
#define AGENT_WINDOW_BYTES 65536u

#endif
