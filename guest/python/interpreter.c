#include "interpreter.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdbool.h>
#include <string.h>
#include <unistd.h>

#include "../fail.h"
#include "prelude.h"
#include "report.h"

#define PY_FILE_INPUT 257

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
	int (*is_true)(void *object);
	void *(*function)(void *definition, void *self, void *module);
	void (*hold)(void *object);
} python;

/* The function of the prelude. */
static void *begin;

static void *find(const char *name)
{
	void *found = dlsym(RTLD_DEFAULT, name);

	if (found == NULL) {
		errno = ENOSYS;
		fail("find %s in this interpreter", name);
		report_failure(fail_text());
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
	*(void **)&python.is_true = find("PyObject_IsTrue");
	*(void **)&python.function = find("PyCFunction_NewEx");
	*(void **)&python.hold = find("Py_IncRef");
}

/* Calls with one bytes object. Returns the result, or NULL after the interpreter has printed the exception. */
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

/* Runs the prelude in a dictionary of its own, which no module shows, and returns that. */
static void *run_prelude(void)
{
	void *globals = python.dict_new();

	if (globals == NULL || python.dict_set(globals, "__builtins__", python.builtins()) < 0)
		return NULL;
	void *done = python.run(python_prelude, PY_FILE_INPUT, globals, globals);
	if (done == NULL) {
		python.print_error();
		return NULL;
	}
	python.release(done);
	return globals;
}

void interpreter_preload(const char *names)
{
	void *answer = NULL;

	find_python();
	void *globals = run_prelude();
	if (globals != NULL) {
		begin = python.dict_get(globals, "begin");
		answer = call_with(python.dict_get(globals, "preload"), names, strlen(names));
	}
	if (answer == NULL)
		report_failure("the prelude failed; see standard error");
	const char *problem = python.text_of(answer);
	if (problem == NULL)
		report_failure("the prelude returned no text");
	if (problem[0] != '\0')
		report_failure(problem);
}

void interpreter_add_builtin(const char *name, void *(*function)(void *self, void *argument))
{
	/* PyMethodDef, which is part of the stable ABI (https://docs.python.org/3/c-api/structures.html). */
	static struct {
		const char *name;
		void *(*function)(void *, void *);
		int flags;
		const char *doc;
	} definition;

	find_python();
	definition.name = name;
	definition.function = function;
	definition.flags = 8; /* METH_O */
	void *made = python.function(&definition, NULL, NULL);
	if (made == NULL || python.dict_set(python.builtins(), name, made) < 0)
		report_failure("a built-in function could not be added");
	python.release(made);
}

bool interpreter_agrees(void *callable, const char *one, size_t one_bytes, const char *other, size_t other_bytes)
{
	void *arguments[] = {python.bytes(one, (ssize_t)one_bytes), python.bytes(other, (ssize_t)other_bytes)};
	void *answer = NULL;

	if (arguments[0] != NULL && arguments[1] != NULL)
		answer = python.call(callable, arguments[0], arguments[1], NULL);
	if (answer == NULL)
		python.print_error();
	bool agrees = answer != NULL && python.is_true(answer) == 1;
	void *const held[] = {arguments[0], arguments[1], answer};
	for (size_t i = 0; i < sizeof(held) / sizeof(held[0]); i++)
		if (held[i] != NULL)
			python.release(held[i]);
	return agrees;
}

void *interpreter_none(void)
{
	void *none = find("_Py_NoneStruct");

	python.hold(none);
	return none;
}

void interpreter_before_fork(void)
{
	python.before_fork();
}

pid_t interpreter_fork(void)
{
	python.before_fork();
	pid_t child = fork();
	int error = errno;
	if (child != 0)
		python.after_fork_parent();
	errno = error;
	return child;
}

void interpreter_after_fork(void)
{
	python.after_fork_child();
}

/* Objects from before the fork are frozen: the collector leaves them, and the pages they lie on, alone. But the module of
 * the program must be collected at exit as usual, or the objects it refers to would not be finalized. */
static void thaw_main(void)
{
	void *main = python.import_main("__main__");
	void *const thawed[] = {main, python.dict_of(main)};

	for (size_t i = 0; i < sizeof(thawed) / sizeof(thawed[0]); i++) {
		python.untrack(thawed[i]);
		python.track(thawed[i]);
	}
}

int interpreter_lock(void)
{
	int (*ensure)(void) = NULL;

	*(void **)&ensure = dlsym(RTLD_DEFAULT, "PyGILState_Ensure");
	return ensure == NULL ? 0 : ensure();
}

void interpreter_unlock(int state)
{
	void (*release)(int) = NULL;

	*(void **)&release = dlsym(RTLD_DEFAULT, "PyGILState_Release");
	if (release != NULL)
		release(state);
}

void interpreter_import_from_home(const char *program)
{
	void *(*find_in_sys)(const char *) = NULL;
	void *(*item)(void *, ssize_t) = NULL;
	int (*set_item)(void *, ssize_t, void *) = NULL;
	const char *(*text_of)(void *) = NULL;
	void *(*text)(const char *) = NULL;
	char home[1025];

	*(void **)&find_in_sys = dlsym(RTLD_DEFAULT, "PySys_GetObject");
	*(void **)&item = dlsym(RTLD_DEFAULT, "PyList_GetItem");
	*(void **)&set_item = dlsym(RTLD_DEFAULT, "PyList_SetItem");
	*(void **)&text_of = dlsym(RTLD_DEFAULT, "PyUnicode_AsUTF8");
	*(void **)&text = dlsym(RTLD_DEFAULT, "PyUnicode_DecodeFSDefault");
	if (find_in_sys == NULL || item == NULL || set_item == NULL || text_of == NULL || text == NULL)
		return;
	void *path = find_in_sys("path");
	void *first = path == NULL ? NULL : item(path, 0);
	const char *directory = first == NULL ? NULL : text_of(first);
	size_t length = directory == NULL ? 0 : strlen(directory);
	bool is_of_program = length > 0 && strncmp(directory, program, length) == 0 && program[length] == '/' &&
			     strchr(program + length + 1, '/') == NULL;
	if (!is_of_program || getcwd(home, sizeof(home)) == NULL)
		return;
	void *own = text(home);
	if (own != NULL)
		set_item(path, 0, own); /* takes the reference */
}

void interpreter_set_file(const char *path)
{
	void *(*import_main)(const char *) = NULL;
	void *(*dict_of)(void *) = NULL;
	int (*dict_set)(void *, const char *, void *) = NULL;
	void *(*text)(const char *) = NULL;
	void *none = dlsym(RTLD_DEFAULT, "_Py_NoneStruct");

	*(void **)&import_main = dlsym(RTLD_DEFAULT, "PyImport_AddModule");
	*(void **)&dict_of = dlsym(RTLD_DEFAULT, "PyModule_GetDict");
	*(void **)&dict_set = dlsym(RTLD_DEFAULT, "PyDict_SetItemString");
	*(void **)&text = dlsym(RTLD_DEFAULT, "PyUnicode_DecodeFSDefault");
	if (import_main == NULL || dict_of == NULL || dict_set == NULL || text == NULL || none == NULL)
		return;
	void *main = import_main("__main__");
	void *file = main == NULL ? NULL : text(path);
	if (file != NULL && dict_set(dict_of(main), "__file__", file) == 0)
		dict_set(dict_of(main), "__cached__", none);
}

void interpreter_set_first_argument(const char *path)
{
	void *(*find_in_sys)(const char *) = NULL;
	int (*set_item)(void *, ssize_t, void *) = NULL;
	void *(*text)(const char *) = NULL;

	*(void **)&find_in_sys = dlsym(RTLD_DEFAULT, "PySys_GetObject");
	*(void **)&set_item = dlsym(RTLD_DEFAULT, "PyList_SetItem");
	*(void **)&text = dlsym(RTLD_DEFAULT, "PyUnicode_DecodeFSDefault");
	if (find_in_sys == NULL || set_item == NULL || text == NULL)
		return;
	void *arguments = find_in_sys("argv");
	void *first = arguments == NULL ? NULL : text(path);
	if (first != NULL)
		set_item(arguments, 0, first); /* takes the reference */
}

int interpreter_begin(const char *variables, size_t bytes)
{
	void *done = call_with(begin, variables, bytes);

	if (done == NULL)
		return -1;
	python.release(done);
	thaw_main();
	return 0;
}
