#include "process.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

#include "../fail.h"
#include "protocol.h"

enum how { HOW_EXITED = 0, HOW_SIGNALED = 1 };
enum target { TARGET_GROUP = 0, TARGET_ONE = 1 };

/* Room is granted in units, so that small writes cost one frame together. The runner is never out of room without one. */
#define ROOM_UNIT_BYTES (AGENT_WINDOW_BYTES / 4)

static void forget(struct process *process)
{
	spawn_close(&process->ends.in);
	spawn_close(&process->ends.out);
	spawn_close(&process->ends.err);
	spawn_close(&process->ends.channel);
	spawn_close(&process->ends.failure);
	pending_forget(&process->input);
	pending_forget(&process->channel);
	*process = (struct process){.state = PROCESS_NONE, .ends = SPAWN_ENDS_NONE};
}

struct process *processes_add(struct processes *processes)
{
	struct process *ended = NULL;

	for (size_t i = 0; i < processes->used; i++) {
		if (processes->list[i].state == PROCESS_NONE)
			return &processes->list[i];
		if (processes->list[i].state == PROCESS_ENDED && ended == NULL)
			ended = &processes->list[i];
	}
	if (processes->used < PROCESSES_MAX)
		return &processes->list[processes->used++];
	if (ended != NULL)
		forget(ended);
	return ended;
}

struct process *processes_find(struct processes *processes, uint32_t number)
{
	for (size_t i = 0; i < processes->used; i++) {
		struct process *process = &processes->list[i];
		if (process->number == number && (process->state == PROCESS_STARTING || process->state == PROCESS_RUNNING))
			return process;
	}
	return NULL;
}

void processes_reaped(struct processes *processes, pid_t pid, int status)
{
	for (size_t i = 0; i < processes->used; i++) {
		struct process *process = &processes->list[i];
		if (process->state == PROCESS_NONE || process->state == PROCESS_ENDED || process->is_reaped || process->pid != pid)
			continue;
		process->is_reaped = true;
		process->status = status;
	}
}

int process_start(struct process *process, uint32_t number, const struct spawn_request *request,
		  const struct preparation *limits)
{
	struct spawn_ends ends;
	pid_t pid = spawn(request, limits, &ends);

	if (pid < 0)
		return -1;
	*process = (struct process){
		.state = PROCESS_STARTING,
		.number = number,
		.pid = pid,
		.has_terminal = request->columns > 0,
		.ends = ends,
	};
	return 0;
}

/* A group that is gone, or has no process yet, is no error: the signal crossed its end. */
static bool send_signal(const struct process *process, const struct frame *frame)
{
	if (frame->length != 5)
		return false;
	uint32_t number = read_u32(frame->payload);
	if (number == 0 || number > 64 || frame->payload[4] > TARGET_ONE)
		return false;
	if (frame->payload[4] == TARGET_ONE && process->is_reaped)
		return true;
	bool is_group = frame->payload[4] == TARGET_GROUP && kill(-process->pid, (int)number) == 0;
	if (!is_group && !process->is_reaped)
		kill(process->pid, (int)number);
	return true;
}

static bool resize(const struct process *process, const struct frame *frame)
{
	if (frame->length != 4)
		return false;
	const struct winsize size = {
		.ws_col = (unsigned short)(frame->payload[0] | frame->payload[1] << 8),
		.ws_row = (unsigned short)(frame->payload[2] | frame->payload[3] << 8),
	};
	if (process->has_terminal)
		ioctl(process->ends.out, TIOCSWINSZ, &size);
	return true;
}

static bool add_credit(uint64_t *credit, const struct frame *frame)
{
	if (frame->length != 4)
		return false;
	*credit += read_u32(frame->payload);
	return *credit <= QUANTITY_MAX;
}

bool process_take(struct process *process, const struct frame *frame)
{
	switch (frame->kind) {
	case AGENT_INPUT: return process->ends.in < 0 || pending_keep(&process->input, frame);
	case AGENT_CHANNEL: return process->ends.channel < 0 || pending_keep(&process->channel, frame);
	case AGENT_INPUT_END: process->input.is_last = true; return true;
	case AGENT_CHANNEL_END: process->channel.is_last = true; return true;
	case AGENT_CREDIT: return add_credit(&process->credit, frame);
	case AGENT_CHANNEL_CREDIT: return add_credit(&process->channel_credit, frame);
	case AGENT_SIGNAL: return send_signal(process, frame);
	case AGENT_RESIZE: return resize(process, frame);
	default: return false;
	}
}

static bool has_pending(const struct pending *pending)
{
	return pending->end > pending->start || pending->is_last;
}

size_t processes_watch(const struct processes *processes, bool has_room, struct pollfd *watches)
{
	for (size_t i = 0; i < processes->used; i++) {
		const struct process *process = &processes->list[i];
		const struct spawn_ends *ends = &process->ends;
		struct pollfd *set = &watches[i * PROCESS_WATCHES];
		bool is_used = process->state != PROCESS_NONE;
		bool may_read = is_used && (process->state == PROCESS_ENDED || (process->credit > 0 && has_room));
		bool may_read_channel = is_used && process->channel_credit > 0 && has_room;
		short channel = (short)((may_read_channel ? POLLIN : 0) | (has_pending(&process->channel) ? POLLOUT : 0));
		set[WATCH_FAILURE] = (struct pollfd){.fd = process->state == PROCESS_STARTING ? ends->failure : -1, .events = POLLIN};
		set[WATCH_INPUT] = (struct pollfd){.fd = is_used && has_pending(&process->input) ? ends->in : -1, .events = POLLOUT};
		set[WATCH_OUTPUT] = (struct pollfd){.fd = may_read ? ends->out : -1, .events = POLLIN};
		set[WATCH_ERRORS] = (struct pollfd){.fd = may_read ? ends->err : -1, .events = POLLIN};
		set[WATCH_CHANNEL] = (struct pollfd){.fd = is_used && channel != 0 ? ends->channel : -1, .events = channel};
	}
	return processes->used * PROCESS_WATCHES;
}

/* At the end of input a terminal receives the character that means it, and a pipe is closed. */
static void finish_input(struct process *process)
{
	struct termios settings;

	if (process->has_terminal && tcgetattr(process->ends.in, &settings) == 0) {
		ssize_t put = write(process->ends.in, &settings.c_cc[VEOF], 1);
		if (put < 0 && errno == EAGAIN)
			return;
	}
	process->input.is_last = false;
	spawn_close(&process->ends.in);
}

static bool grant(struct process *process, struct pending *pending, uint8_t kind, struct outbox *outbox)
{
	uint8_t bytes[4];

	if (pending->taken < ROOM_UNIT_BYTES)
		return true;
	write_u32(bytes, pending->taken);
	pending->taken = 0;
	return outbox_send(outbox, kind, process->number, bytes, sizeof(bytes));
}

/* Moves output into one frame; drops that of an ended process. */
static void pump(struct process *process, int *fd, uint8_t kind, uint64_t *credit, struct outbox *outbox)
{
	static uint8_t dropped[FRAME_OUT_MAX_BYTES];
	bool is_dropped = process->state == PROCESS_ENDED;

	if (*fd < 0 || (!is_dropped && (*credit == 0 || !outbox_has_room(outbox))))
		return;
	size_t most = is_dropped || *credit > FRAME_OUT_MAX_BYTES ? FRAME_OUT_MAX_BYTES : (size_t)*credit;
	ssize_t got = read(*fd, is_dropped ? dropped : outbox_reserve(outbox), most);
	if (got < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (got <= 0) {
		spawn_close(fd); /* also EIO: the terminal has no program any more */
		return;
	}
	if (is_dropped)
		return;
	outbox_commit(outbox, kind, process->number, (uint32_t)got);
	*credit -= (uint64_t)got;
}

static bool is_empty(int fd)
{
	int waiting = 0;

	return fd < 0 || ioctl(fd, FIONREAD, &waiting) < 0 || waiting == 0;
}

/* Reports what became of exec. Returns false when the outbox is full. */
static bool take_failure(struct process *process, struct outbox *outbox)
{
	uint8_t text[FAIL_TEXT_BYTES];
	uint8_t pid[4];

	ssize_t got = read(process->ends.failure, text, sizeof(text));
	if (got < 0 && (errno == EAGAIN || errno == EINTR))
		return true;
	if (got > 0) {
		uint32_t number = process->number;
		forget(process);
		return outbox_send(outbox, AGENT_NOT_STARTED, number, text, (uint32_t)got);
	}
	spawn_close(&process->ends.failure);
	process->state = PROCESS_RUNNING;
	write_u32(pid, (uint32_t)process->pid);
	return outbox_send(outbox, AGENT_STARTED, process->number, pid, sizeof(pid));
}

/* Reports the end once all output that was there is sent. Descendants may hold the pipes open for as long as they like. */
static bool finish(struct process *process, struct outbox *outbox)
{
	uint8_t payload[5] = {HOW_SIGNALED};
	const struct spawn_ends *ends = &process->ends;

	if (!process->is_reaped || process->state != PROCESS_RUNNING)
		return true;
	if (!is_empty(ends->out) || !is_empty(ends->err) || !is_empty(ends->channel))
		return true;
	if (WIFEXITED(process->status)) {
		payload[0] = HOW_EXITED;
		write_u32(payload + 1, (uint32_t)WEXITSTATUS(process->status));
	} else {
		write_u32(payload + 1, (uint32_t)WTERMSIG(process->status));
	}
	bool is_sent = outbox_send(outbox, AGENT_ENDED, process->number, payload, sizeof(payload));
	process->state = PROCESS_ENDED;
	spawn_close(&process->ends.in);
	spawn_close(&process->ends.channel);
	pending_forget(&process->input);
	pending_forget(&process->channel);
	if (process->has_terminal)
		spawn_close(&process->ends.out);
	return is_sent;
}

static bool advance(struct process *process, const struct pollfd set[PROCESS_WATCHES], struct outbox *outbox)
{
	struct spawn_ends *ends = &process->ends;

	if (set[WATCH_FAILURE].revents != 0 && !take_failure(process, outbox))
		return false;
	if (process->state == PROCESS_NONE)
		return true;
	if (ends->in >= 0 && set[WATCH_INPUT].revents != 0) {
		bool is_read = pending_feed(&process->input, ends->in);
		if (!is_read)
			pending_drop(&process->input);
		if (!is_read && !process->has_terminal)
			spawn_close(&ends->in);
		else if (process->input.is_last && process->input.end == 0)
			finish_input(process);
	}
	if (ends->channel >= 0 && (set[WATCH_CHANNEL].revents & POLLOUT) != 0) {
		if (!pending_feed(&process->channel, ends->channel))
			pending_drop(&process->channel);
		if (process->channel.is_last && process->channel.end == 0) {
			process->channel.is_last = false;
			shutdown(ends->channel, SHUT_WR);
		}
	}
	if (set[WATCH_OUTPUT].revents != 0)
		pump(process, &ends->out, AGENT_STDOUT, &process->credit, outbox);
	if (set[WATCH_ERRORS].revents != 0)
		pump(process, &ends->err, AGENT_STDERR, &process->credit, outbox);
	if (process->state != PROCESS_ENDED && (set[WATCH_CHANNEL].revents & ~POLLOUT) != 0)
		pump(process, &ends->channel, AGENT_FROM_CHANNEL, &process->channel_credit, outbox);
	if (!grant(process, &process->input, AGENT_INPUT_ROOM, outbox) ||
	    !grant(process, &process->channel, AGENT_CHANNEL_ROOM, outbox) || !finish(process, outbox))
		return false;
	if (process->state == PROCESS_ENDED && ends->out < 0 && ends->err < 0)
		forget(process);
	return true;
}

bool processes_advance(struct processes *processes, const struct pollfd *watches, struct outbox *outbox)
{
	/* What processes_watch saw: none is added meanwhile. */
	for (size_t i = 0; i < processes->used; i++)
		if (processes->list[i].state != PROCESS_NONE &&
		    !advance(&processes->list[i], &watches[i * PROCESS_WATCHES], outbox))
			return false;
	while (processes->used > 0 && processes->list[processes->used - 1].state == PROCESS_NONE)
		processes->used--;
	return true;
}
