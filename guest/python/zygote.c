/* The Python language host: a shared object that an unmodified python3 is started with (LD_PRELOAD).
 *
 * The interpreter is started as `python3 -u -`, and comes, with everything set up and no frame on its stack, to the
 * point where it reads its program from standard input. What it reads there is ours: the first read imports what was
 * asked for and then forks for each run. What is forked joins its jail, and its read returns the source text of the
 * run. So everything after that (how it parses, prints a traceback, ends, and exits with which code) is the
 * interpreter's own doing, and nothing has to be imitated.
 *
 * What is forked alone reads its request, from a pipe of its own: no fork ever holds code or variables of another run.
 *
 * No header of Python is needed: the few functions used have kept their form since Python 3.7, and are looked up by
 * name. An interpreter without them ends at once, and its runs are started afresh. */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../descriptors.h"
#include "../ids.h"
#include "../jail.h"
#include "../zygote-protocol.h"
#include "../pass.h"
#include "../seccomp.h"

/* Where what is forked keeps its talk with the guest until it has its request. */
#define TALK 3

#define CHILDREN_MAX 4

/* After so long without a request there is time for what would only be in its way. */
#define QUIET_MS 2

/* A plain interpreter has 5 MiB of what can be written to. */
#define COPIED_AHEAD_MAX_BYTES (8u * 1024 * 1024)

/* Since Linux 5.14; older headers lack them. */
#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22
#define MADV_POPULATE_WRITE 23
#endif

#define PY_FILE_INPUT 257
#define EXIT_HOST_FAILED 70

/* Names of modules with commas between them. */
#define PRELOAD_VARIABLE "GLOVEBOX_PRELOAD"

extern char **environ;

/* https://docs.python.org/3/c-api/ */
static struct {
	void (*before_fork)(void);
	void (*after_fork_parent)(void);
	void (*after_fork_child)(void);
	void *(*dict_new)(void);
	void *(*dict_get)(void *dict, const char *name);
	void *(*run)(const char *source, int start, void *globals, void *locals);
	void *(*builtins)(void);
	int (*dict_set)(void *dict, const char *name, void *value);
	void *(*bytes)(const char *text, ssize_t length);
	void *(*call)(void *callable, void *first, ...);
	void *(*modules)(void);
	void *(*import_main)(const char *name);
	void *(*dict_of)(void *module);
	void (*untrack)(void *object);
	void (*track)(void *object);
	const char *(*text_of)(void *string);
	void (*release)(void *object);
	void (*print_error)(void);
} python;

/* Of both: what is imported before, what is set right after a fork. */
static const char helper[] =
	"import sys\n"
	"unseen = {'atexit', 'gc'} - set(sys.modules)\n"
	"import atexit, gc, os, posix, time\n"
	"for name in unseen:\n"
	"    del sys.modules[name]\n"
	"\n"
	"# Called after all that a program registers, and before the interpreter takes its modules apart: those of before the\n"
	"# fork are left whole, which saves most of the time and memory that an end takes. Their names go as they always do,\n"
	"# and what the program hung on them is let go, so that it is finalized.\n"
	"def last():\n"
	"    for name, (module, attributes, size) in held.items():\n"
	"        if modules.get(name) is module:\n"
	"            modules[name] = None\n"
	"        if len(attributes) > size:\n"
	"            for added in list(attributes)[size:]:\n"
	"                attributes[added] = None\n"
	"\n"
	"atexit.register(last)\n"
	"modules = sys.modules\n"
	"held = {}\n"
	"\n"
	"def preload(names):\n"
	"    for name in filter(None, names.decode().split(',')):\n"
	"        try:\n"
	"            __import__(name)\n"
	"        except BaseException as error:\n"
	"            return f'import {name}: {type(error).__name__}: {error}'\n"
	"    for name, module in modules.items():\n"
	"        if name not in ('__main__', 'builtins', 'sys') and type(module) is type(sys):\n"
	"            held[name] = module, vars(module), len(vars(module))\n"
	"    gc.collect()\n"
	"    gc.freeze()\n"
	"    return ''\n"
	"\n"
	"def begin(block):\n"
	"    os.environb.clear()\n"
	"    posix.environ.clear()\n"
	"    for pair in block.split(b'\\0')[:-1]:\n"
	"        name, _, value = pair.partition(b'=')\n"
	"        os.environb[name] = value\n"
	"        posix.environ[name] = value\n"
	"    time.tzset()\n"
	"    # Python reseeds its own generator in a fork, numpy does not.\n"
	"    numpy_random = sys.modules.get('numpy.random')\n"
	"    if numpy_random is not None:\n"
	"        numpy_random.seed()\n"
	"    if site is not None and site.ENABLE_USER_SITE and os.path.isdir(site.USER_SITE):\n"
	"        add_user_site()\n"
	"\n"
	"def add_user_site():\n"
	"    known = list(sys.path)\n"
	"    site.addsitedir(site.USER_SITE)\n"
	"    added = [path for path in sys.path if path not in known]\n"
	"    shared = [path for path in known if path.endswith(('-packages'))]\n"
	"    at = known.index(shared[0]) if shared else len(known)\n"
	"    sys.path[:] = known[:at] + added + known[at:]\n"
	"\n"
	"site = sys.modules.get('site')\n"
	"if site is not None:\n"
	"    site.getusersitepackages()\n";

static void *begin;

static char *source;
static size_t source_bytes;
static size_t source_read;

static void say(uint8_t word, int32_t pid, int32_t status)
{
	struct host_report report = {.word = word, .pid = pid, .status = status};

	if (word == HOST_FAILED)
		memcpy(report.text, fail_text(), sizeof(report.text));
	send(HOST_SOCKET, &report, sizeof(report), MSG_NOSIGNAL);
}

static _Noreturn void give_up(void)
{
	say(HOST_FAILED, 0, 0);
	_exit(EXIT_HOST_FAILED);
}

static void *find(const char *name)
{
	void *found = dlsym(RTLD_DEFAULT, name);

	if (found == NULL) {
		errno = ENOSYS;
		fail("find %s in this interpreter", name);
		give_up();
	}
	return found;
}

static void find_python(void)
{
	*(void **)&python.before_fork = find("PyOS_BeforeFork");
	*(void **)&python.after_fork_parent = find("PyOS_AfterFork_Parent");
	*(void **)&python.after_fork_child = find("PyOS_AfterFork_Child");
	*(void **)&python.dict_new = find("PyDict_New");
	*(void **)&python.dict_get = find("PyDict_GetItemString");
	*(void **)&python.dict_set = find("PyDict_SetItemString");
	*(void **)&python.import_main = find("PyImport_AddModule");
	*(void **)&python.dict_of = find("PyModule_GetDict");
	*(void **)&python.untrack = find("PyObject_GC_UnTrack");
	*(void **)&python.track = find("PyObject_GC_Track");
	*(void **)&python.run = find("PyRun_String");
	*(void **)&python.builtins = find("PyEval_GetBuiltins");
	*(void **)&python.bytes = find("PyBytes_FromStringAndSize");
	*(void **)&python.call = find("PyObject_CallFunctionObjArgs");
	*(void **)&python.modules = find("PyImport_GetModuleDict");
	*(void **)&python.text_of = find("PyUnicode_AsUTF8");
	*(void **)&python.release = find("Py_DecRef");
	*(void **)&python.print_error = find("PyErr_Print");
}

/* Calls with one bytes object. Returns what came back, or NULL when the interpreter has said what went wrong. */
static void *call_with(void *callable, const char *text, size_t length)
{
	void *argument = python.bytes(text, (ssize_t)length);
	void *answer = argument == NULL ? NULL : python.call(callable, argument, NULL);

	if (answer == NULL)
		python.print_error();
	if (argument != NULL)
		python.release(argument);
	return answer;
}

/* Runs the helper. Its names live in a dictionary of their own, which this returns: no module shows it. */
static void *run_helper(void)
{
	void *globals = python.dict_new();

	if (globals == NULL || python.dict_set(globals, "__builtins__", python.builtins()) < 0)
		return NULL;
	void *done = python.run(helper, PY_FILE_INPUT, globals, globals);
	if (done == NULL) {
		python.print_error();
		return NULL;
	}
	python.release(done);
	return globals;
}

/* Imports what was asked for, or ends with the reason why it cannot be. */
static void import_all(const char *names)
{
	struct host_report report = {.word = HOST_FAILED};
	void *globals = run_helper();
	void *answer = NULL;

	if (globals != NULL) {
		begin = python.dict_get(globals, "begin");
		answer = call_with(python.dict_get(globals, "preload"), names, strlen(names));
	}
	const char *problem = answer == NULL ? "the helper failed; see standard error" : python.text_of(answer);
	if (problem != NULL && problem[0] == '\0')
		return;
	strncpy(report.text, problem == NULL ? "the helper gave no answer" : problem, sizeof(report.text) - 1);
	send(HOST_SOCKET, &report, sizeof(report), MSG_NOSIGNAL);
	_exit(EXIT_HOST_FAILED);
}

/* From here on it is a process of the jail, and of its user. */
static int enter_jail(const struct join *join, const int passed[JOIN_DESCRIPTORS])
{
	static const struct {
		enum join_descriptor descriptor;
		int type;
	} spaces[] = {
		{JOIN_NET, CLONE_NEWNET}, {JOIN_IPC, CLONE_NEWIPC}, {JOIN_UTS, CLONE_NEWUTS}, {JOIN_MNT, CLONE_NEWNS},
	};
	struct preparation limits = {
		.open_files = join->open_files,
		.file_bytes = join->file_bytes,
		.pids = join->pids,
	};

	for (size_t i = 0; i < sizeof(spaces) / sizeof(spaces[0]); i++)
		if (setns(passed[spaces[i].descriptor], spaces[i].type) < 0)
			return fail("join a namespace of the jail");
	if (dup2(passed[JOIN_IN], 0) < 0 || dup2(passed[JOIN_OUT], 1) < 0 || dup2(passed[JOIN_ERR], 2) < 0 ||
	    dup2(passed[JOIN_IMAGES], IMAGES) < 0 || descriptors_close_from_but(TALK + 1, IMAGES) < 0)
		return fail("take the run's streams");
	umask(022);
	if (ids_offer_to_oom_killer() < 0 || ids_limit(&limits) < 0 || ids_become_user() < 0)
		return -1;
	/* What an exec would have done: without it everything in /proc/self would be root's. */
	if (prctl(PR_SET_DUMPABLE, 1, 0, 0, 0) < 0)
		return fail("be the user's own");
	if (setsid() < 0 || chdir(join->home) < 0)
		return fail("enter %s in a session of its own", join->home);
	return seccomp_load();
}

static void report(uint8_t kind)
{
	struct report ready = {.kind = kind};

	if (kind == REPORT_FAILED)
		memcpy(ready.text, fail_text(), sizeof(ready.text));
	send(TALK, &ready, sizeof(ready), MSG_NOSIGNAL);
}

static char *read_whole(size_t bytes)
{
	char *text = malloc(bytes + 1);
	size_t filled = 0;

	while (text != NULL && filled < bytes) {
		ssize_t got = read(0, text + filled, bytes - filled);
		if (got <= 0 && !(got < 0 && errno == EINTR))
			_exit(EXIT_HOST_FAILED); /* the guest is gone */
		filled += got > 0 ? (size_t)got : 0;
	}
	if (text == NULL)
		_exit(EXIT_HOST_FAILED);
	text[bytes] = '\0';
	return text;
}

/* What was there before the fork is frozen: the collector leaves it, and the pages it lies on, alone. But the program's
 * own module must be collected at its end, as ever, or what it holds would not be finalized. */
static void thaw_main(void)
{
	void *main = python.import_main("__main__");
	void *const thawed[] = {main, python.dict_of(main)};

	for (size_t i = 0; i < sizeof(thawed) / sizeof(thawed[0]); i++) {
		python.untrack(thawed[i]);
		python.track(thawed[i]);
	}
}

static void take_request(const struct join *join)
{
	struct join_request request;
	ssize_t got;

	do
		got = recv(TALK, &request, sizeof(request), 0);
	while (got < 0 && errno == EINTR);
	if (got != sizeof(request))
		_exit(EXIT_HOST_FAILED);
	close(TALK);
	/* Storage has come to lie over the directory that was entered. */
	if (request.has_storage && chdir(join->home) < 0)
		_exit(EXIT_HOST_FAILED);
	char *variables = read_whole(request.env_bytes);
	void *done = call_with(begin, variables, request.env_bytes);
	if (done == NULL)
		_exit(EXIT_HOST_FAILED);
	python.release(done);
	explicit_bzero(variables, request.env_bytes);
	free(variables);
	thaw_main();
	source = read_whole(request.code_bytes);
	source_bytes = request.code_bytes;
}

/* Takes, while nobody waits, the page faults that the run would take: a fork shares every page until it is written to,
 * and has none of the program's text mapped. Measured: 1.2 ms of 3.1 less between request and end, for 1.8 ms more in
 * all. Best effort. */
static void fault_ahead(void)
{
	FILE *maps = fopen("/proc/self/maps", "re");
	char line[512];
	unsigned long from, to;
	char rights[5];
	size_t copied = 0;

	while (maps != NULL && fgets(line, sizeof(line), maps) != NULL) {
		if (sscanf(line, "%lx-%lx %4s", &from, &to, rights) != 3 || rights[0] != 'r' || rights[3] != 'p')
			continue;
		if (rights[1] != 'w') {
			madvise((void *)from, to - from, MADV_POPULATE_READ);
			continue;
		}
		/* What was imported ahead may be large, and most of it is never written to. */
		copied += to - from;
		if (copied <= COPIED_AHEAD_MAX_BYTES)
			madvise((void *)from, to - from, MADV_POPULATE_WRITE);
	}
	if (maps != NULL)
		fclose(maps);
}

static void become_run(const struct join *join, const int passed[JOIN_DESCRIPTORS])
{
	/* Over the host's own socket, which it has no use for. */
	if (dup3(passed[JOIN_TALK], TALK, O_CLOEXEC) < 0)
		_exit(EXIT_HOST_FAILED);
	if (enter_jail(join, passed) < 0) {
		report(REPORT_FAILED);
		_exit(EXIT_HOST_FAILED);
	}
	python.after_fork_child();
	report(REPORT_READY);
	/* Whoever calls again at once waits for none of it, and a busy machine is not made busier. */
	struct pollfd request = {.fd = TALK, .events = POLLIN};
	if (poll(&request, 1, QUIET_MS) == 0)
		fault_ahead();
	take_request(join);
}

/* Returns the child's pid, 0 in the child, -1 with fail_text. */
static pid_t fork_into(const int passed[JOIN_DESCRIPTORS])
{
	if (setns(passed[JOIN_PID], CLONE_NEWPID) < 0)
		return fail("choose the jail's pid namespace");
	python.before_fork();
	pid_t child = fork();
	int error = errno;
	if (child == 0)
		return 0;
	python.after_fork_parent();
	if (setns(HOST_PID_NAMESPACE, CLONE_NEWPID) < 0) {
		fail("come back to the slot's pid namespace");
		give_up();
	}
	errno = error;
	return child < 0 ? fail("fork for a run") : child;
}

struct children {
	struct pollfd watches[1 + CHILDREN_MAX]; /* the first is the socket */
	pid_t pids[1 + CHILDREN_MAX];
};

static void reap(struct children *children)
{
	int status;

	for (size_t i = 1; i <= CHILDREN_MAX; i++) {
		if (children->watches[i].fd < 0 || children->watches[i].revents == 0)
			continue;
		if (waitpid(children->pids[i], &status, 0) == children->pids[i])
			say(HOST_STATUS, children->pids[i], status);
		close(children->watches[i].fd);
		children->watches[i].fd = -1;
	}
}

static void keep_child(struct children *children, pid_t child)
{
	for (size_t i = 1; i <= CHILDREN_MAX; i++) {
		if (children->watches[i].fd >= 0)
			continue;
		children->pids[i] = child;
		children->watches[i] = (struct pollfd){
			.fd = (int)syscall(SYS_pidfd_open, child, 0),
			.events = POLLIN,
		};
		if (children->watches[i].fd >= 0) {
			say(HOST_FORKED, child, 0);
			return;
		}
	}
	fail("watch a child");
	give_up();
}

/* Returns true in a child, which has its source then. Otherwise does not return. */
static bool serve(void)
{
	struct children children;
	struct join join;
	int passed[JOIN_DESCRIPTORS];

	for (size_t i = 0; i <= CHILDREN_MAX; i++)
		children.watches[i] = (struct pollfd){.fd = i == 0 ? HOST_SOCKET : -1, .events = POLLIN};
	say(HOST_READY, 0, 0);
	for (;;) {
		if (poll(children.watches, 1 + CHILDREN_MAX, -1) < 0)
			continue;
		reap(&children);
		if (children.watches[0].revents == 0)
			continue;
		size_t count;
		if (pass_receive(HOST_SOCKET, &join, sizeof(join), passed, JOIN_DESCRIPTORS, &count) <= 0 ||
		    count != JOIN_DESCRIPTORS)
			_exit(0); /* the guest is gone */
		pid_t child = fork_into(passed);
		if (child == 0) {
			become_run(&join, passed);
			return true;
		}
		if (child < 0)
			give_up();
		keep_child(&children, child);
		for (size_t i = 0; i < JOIN_DESCRIPTORS; i++)
			close(passed[i]);
	}
}

static char preload[4096];
static FILE *program;

/* Asked by the interpreter what its standard input is, whatever stands in its place: the object that a program reads
 * from is made from the descriptor. */
__attribute__((visibility("default"))) int fileno(FILE *file)
{
	static int (*usual)(FILE *);

	if (file == program)
		return 0;
	if (usual == NULL)
		*(void **)&usual = dlsym(RTLD_NEXT, "fileno");
	return usual(file);
}

/* What the interpreter takes for its standard input. */
static ssize_t read_program(void *unused, char *into, size_t size)
{
	static bool has_served;

	(void)unused;
	if (!has_served) {
		has_served = true;
		find_python();
		import_all(preload);
		serve();
	}
	if (size > source_bytes - source_read)
		size = source_bytes - source_read;
	memcpy(into, source + source_read, size);
	source_read += size;
	return (ssize_t)size;
}

/* Variables of ours are nobody's to see, in the process's environment block either. */
static void hide_variable(const char *name)
{
	char *value = getenv(name);

	if (value == NULL)
		return;
	memset(value, 0, strlen(value));
	unsetenv(name);
}

__attribute__((constructor)) static void become_host(void)
{
	const cookie_io_functions_t functions = {.read = read_program};
	const char *names = getenv(PRELOAD_VARIABLE);

	if (names == NULL)
		return;
	strncpy(preload, names, sizeof(preload) - 1);
	hide_variable(PRELOAD_VARIABLE);
	hide_variable("LD_PRELOAD");
	if (seccomp_build() < 0)
		give_up();
	program = fopencookie(NULL, "r", functions);
	if (program == NULL) {
		fail("take the place of standard input");
		give_up();
	}
	stdin = program;
}
