/* Stands in for the guest of a slot, as one that was taken over: PID 1, speaking to the runner's side as it likes.
 *
 * HELLO (at compile time) says how it begins: "proper", or a fault. After that the first ARG of a PREPARE names what
 * it does to that run. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#ifndef HELLO
#define HELLO "proper"
#endif

enum { PREPARE = 1, CODE, STDIN, GO, CREDIT, KILL };
enum { SAYS_HELLO = 64, WAITING, STDOUT, STDERR, EXITED, FAILED, FORKER, HOST_GONE, IMAGES };

static uint8_t payload[1 << 20];
static char deed[64];
static uint32_t run;
static pid_t child;
static int to_jailer[2];
static int from_jailer[2];

static void put(const void *bytes, size_t length)
{
	const char *at = bytes;

	while (length > 0) {
		ssize_t sent = write(1, at, length);
		if (sent <= 0)
			_exit(0);
		at += sent;
		length -= (size_t)sent;
	}
}

static void frame_of(uint32_t number, uint32_t kind, const void *bytes, uint32_t length)
{
	uint32_t header[3] = {length, number, kind};

	put(header, sizeof(header));
	put(bytes, length);
}

static void frame(uint32_t kind, const void *bytes, uint32_t length)
{
	frame_of(run, kind, bytes, length);
}

static int get(void *bytes, size_t length)
{
	char *at = bytes;

	while (length > 0) {
		ssize_t got = read(0, at, length);
		if (got <= 0)
			return 0;
		at += got;
		length -= (size_t)got;
	}
	return 1;
}

static uint32_t next_kind(uint32_t *length)
{
	uint32_t header[3];

	if (!get(header, sizeof(header)) || header[0] > sizeof(payload) || !get(payload, header[0]))
		_exit(0);
	*length = header[0];
	if (header[2] == PREPARE)
		run = header[1];
	return header[2];
}

static void await(uint32_t kind)
{
	uint32_t length;

	while (next_kind(&length) != kind)
		continue;
}

static _Noreturn void stay(void)
{
	for (;;)
		sleep(60);
}

/* Lives where the runner moves it, and so does what it clones. */
static _Noreturn void serve_as_jailer(void)
{
	char please;

	close(0);
	close(1);
	while (read(to_jailer[0], &please, 1) == 1) {
		pid_t made = (pid_t)syscall(SYS_clone, CLONE_NEWPID | CLONE_PARENT | SIGCHLD, 0, 0, 0, 0);
		if (made == 0)
			stay();
		if (write(from_jailer[1], &made, sizeof(made)) != sizeof(made))
			_exit(0);
	}
	_exit(0);
}

/* A process that the host may take for the main process of a jail: in a pid namespace below the slot's. */
static void start_run(void)
{
	if (write(to_jailer[1], "", 1) != 1 || read(from_jailer[0], &child, sizeof(child)) != sizeof(child))
		_exit(0);
	frame(WAITING, &child, 4);
	await(GO);
}

static void exited(uint8_t how, uint32_t value)
{
	uint8_t body[5] = {how};

	memcpy(body + 1, &value, 4);
	frame(EXITED, body, 5);
}

static void say_hello(void)
{
	uint32_t version = 3;

	if (strcmp(HELLO, "silent") == 0)
		stay();
	if (strcmp(HELLO, "gone") == 0)
		_exit(0);
	if (strcmp(HELLO, "garbage") == 0)
		for (;;)
			put(payload, sizeof(payload));
	if (strcmp(HELLO, "huge") == 0)
		put((uint32_t[3]){0xfffffff0, 0, SAYS_HELLO}, 12);
	if (strcmp(HELLO, "another") == 0)
		version = 4;
	if (strcmp(HELLO, "late") == 0)
		frame_of(0, WAITING, &version, 4);
	frame_of(0, SAYS_HELLO, &version, 4);
	if (pipe(to_jailer) < 0 || pipe(from_jailer) < 0)
		_exit(0);
	uint32_t jailer = (uint32_t)fork();
	if (jailer == 0)
		serve_as_jailer();
	frame_of(0, FORKER, &jailer, 4);
}

/* The first record of a PREPARE is the first ARG: tag, length, value. */
static void learn_deed(void)
{
	uint32_t length;

	memcpy(&length, payload + 1, 4);
	if (length < sizeof(deed))
		memcpy(deed, payload + 5, length);
}

static int is(const char *what)
{
	return strcmp(deed, what) == 0;
}

static void spoil_before_start(void)
{
	uint32_t one = 1;
	uint32_t others = 4000;

	if (is("silence"))
		stay();
	if (is("garbage")) {
		for (size_t i = 0; i < sizeof(payload); i++)
			payload[i] = (uint8_t)(i * 31 + 7);
		for (;;)
			put(payload, sizeof(payload));
	}
	if (is("huge-frame"))
		put((uint32_t[3]){0xffffffff, run, STDOUT}, 12);
	if (is("large-frame"))
		put((uint32_t[3]){65537, run, STDOUT}, 12);
	if (is("half-frame")) {
		put((uint32_t[1]){4}, 4);
		stay();
	}
	if (is("unknown-kind"))
		frame(99, NULL, 0);
	if (is("kind-with-more"))
		put((uint32_t[3]){0, run, STDOUT | 1u << 24}, 12);
	if (is("frame-to-itself"))
		frame(GO, NULL, 0);
	if (is("other-run"))
		frame_of(run + 1, WAITING, &one, 4);
	if (is("no-run"))
		frame_of(0, WAITING, &one, 4);
	if (is("hello-again"))
		frame(SAYS_HELLO, &one, 4);
	if (is("short-number"))
		frame(WAITING, &one, 3);
	if (is("waits-as-itself"))
		frame(WAITING, &one, 4);
	if (is("waits-as-another"))
		frame(WAITING, &others, 4);
	if (is("early-output"))
		frame(STDOUT, "x", 1);
	if (is("early-images"))
		frame(IMAGES, "x", 1);
	if (is("early-exit"))
		exited(0, 0);
	if (is("endless-failure"))
		frame(FAILED, memset(payload, 'x', 65536), 65536);
}

static void spoil_run(void)
{
	if (is("waits-twice"))
		frame(WAITING, (uint32_t[1]){2}, 4);
	if (is("endless-output"))
		for (;;)
			frame(STDOUT, memset(payload, 'x', 65536), 65536);
	if (is("endless-images"))
		for (;;)
			frame(IMAGES, memset(payload, 'x', 65536), 65536);
	if (is("empty-images"))
		for (;;)
			frame(IMAGES, NULL, 0);
	if (is("empty-output"))
		for (;;)
			frame(STDERR, NULL, 0);
	if (is("complaints"))
		for (;;)
			if (write(2, payload, 65536) < 0)
				stay();
	if (is("lies-about-the-end"))
		exited(0, 0);
	if (is("impossible-code"))
		exited(0, 999);
	if (is("impossible-end"))
		exited(9, 0);
	if (is("late-failure"))
		frame(FAILED, "x", 1);
	if (is("ends-twice")) {
		kill(child, SIGKILL);
		waitpid(child, NULL, 0);
		exited(0, 0);
		exited(0, 0);
	}
	if (is("hangs-up")) {
		close(0);
		close(1);
	}
	if (is("multiplies"))
		for (;;)
			if (fork() < 0)
				usleep(1000);
	if (is("grows"))
		for (;;)
			memset(mmap(NULL, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), 1, 1 << 20);
	stay(); /* also for "never-ends": KILL is not heard */
}

int main(void)
{
	signal(SIGPIPE, SIG_IGN);
	say_hello();
	await(PREPARE);
	learn_deed();
	spoil_before_start();
	start_run();
	spoil_run();
}
