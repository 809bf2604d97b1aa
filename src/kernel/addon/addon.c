/* Node-API addon with the system calls that Node does not provide. Every operation in the lists below returns a promise
 * and runs on a thread of the libuv pool. None blocks on anything that code in a sandbox controls. The operations are in
 * files named after their kernel subject. */
#define _GNU_SOURCE
#include "job.h"
#include "peer.h"

#include <errno.h>
#include <node_api.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

struct call {
	struct job job;
	const struct operation *operation;
	napi_async_work work;
	napi_deferred deferred;
};

void job_fail(struct job *job, const char *step)
{
	job->error = errno;
	job->step = step;
}

static void call_free(struct call *call)
{
	for (size_t i = 0; i < ARGUMENTS_MAX; i++)
		free(call->job.text[i]);
	free(call->job.bytes);
	free(call);
}

static bool take_text(napi_env env, napi_value argument, char **text)
{
	void *bytes;
	size_t length;
	bool is_buffer;

	if (napi_is_buffer(env, argument, &is_buffer) != napi_ok || !is_buffer ||
	    napi_get_buffer_info(env, argument, &bytes, &length) != napi_ok)
		return false;
	if (length > 0 && memchr(bytes, 0, length) != NULL)
		return false;
	*text = calloc(1, length + 1);
	if (*text == NULL)
		return false;
	if (length > 0)
		memcpy(*text, bytes, length);
	return true;
}

static bool take_arguments(napi_env env, napi_callback_info info, struct call *call)
{
	const char *signature = call->operation->signature;
	size_t count = strlen(signature), given = ARGUMENTS_MAX, numbers = 0, texts = 0;
	napi_value arguments[ARGUMENTS_MAX];

	if (napi_get_cb_info(env, info, &given, arguments, NULL, NULL) != napi_ok || given != count)
		return false;
	for (size_t i = 0; i < count; i++) {
		bool taken = signature[i] == 'n'
			? napi_get_value_int64(env, arguments[i], &call->job.number[numbers++]) == napi_ok
			: take_text(env, arguments[i], &call->job.text[texts++]);
		if (!taken)
			return false;
	}
	return true;
}

static void execute(napi_env env, void *data)
{
	struct call *call = data;

	(void)env;
	call->operation->run(&call->job);
}

static napi_value numbers_of(napi_env env, const struct job *job)
{
	napi_value array, number;

	if (napi_create_array_with_length(env, NUMBERS_MAX, &array) != napi_ok)
		return NULL;
	for (uint32_t i = 0; i < NUMBERS_MAX; i++)
		if (napi_create_int64(env, job->result[i], &number) != napi_ok ||
		    napi_set_element(env, array, i, number) != napi_ok)
			return NULL;
	return array;
}

static napi_value result_of(napi_env env, const struct call *call)
{
	napi_value value = NULL;
	napi_status status = napi_ok;

	switch (call->operation->result) {
	case RESULT_NONE:
		status = napi_get_undefined(env, &value);
		break;
	case RESULT_NUMBER:
		status = napi_create_int64(env, call->job.result[0], &value);
		break;
	case RESULT_NUMBERS:
		return numbers_of(env, &call->job);
	case RESULT_BYTES:
		status = napi_create_buffer_copy(env, call->job.size, call->job.bytes, NULL, &value);
		break;
	}
	return status == napi_ok ? value : NULL;
}

/* Creates an Error like those of Node's fs: code, errno (negative) and syscall. */
static napi_value error_of(napi_env env, const struct job *job)
{
	const char *name = strerrorname_np(job->error);
	char text[160] = "";
	napi_value code, message, error, number, step;

	if (name == NULL)
		name = "EUNKNOWN";
	strcat(text, name);
	strcat(text, ": ");
	strncat(text, job->step, 100);
	if (napi_create_string_utf8(env, name, NAPI_AUTO_LENGTH, &code) != napi_ok ||
	    napi_create_string_utf8(env, text, NAPI_AUTO_LENGTH, &message) != napi_ok ||
	    napi_create_error(env, code, message, &error) != napi_ok ||
	    napi_create_int32(env, -job->error, &number) != napi_ok ||
	    napi_create_string_utf8(env, job->step, NAPI_AUTO_LENGTH, &step) != napi_ok ||
	    napi_set_named_property(env, error, "errno", number) != napi_ok ||
	    napi_set_named_property(env, error, "syscall", step) != napi_ok)
		return NULL;
	return error;
}

static void complete(napi_env env, napi_status status, void *data)
{
	struct call *call = data;
	napi_value value;

	if (status != napi_ok && call->job.error == 0) {
		call->job.error = ECANCELED;
		call->job.step = call->operation->name;
	}
	if (call->job.error == 0) {
		value = result_of(env, call);
		if (value != NULL)
			napi_resolve_deferred(env, call->deferred, value);
	} else {
		value = error_of(env, &call->job);
		if (value != NULL)
			napi_reject_deferred(env, call->deferred, value);
	}
	napi_delete_async_work(env, call->work);
	call_free(call);
}

static napi_value start(napi_env env, napi_callback_info info)
{
	struct call *call = calloc(1, sizeof(*call));
	napi_value name, promise;
	void *operation;

	if (call == NULL || napi_get_cb_info(env, info, NULL, NULL, NULL, &operation) != napi_ok) {
		free(call);
		napi_throw_error(env, NULL, "out of memory");
		return NULL;
	}
	call->operation = operation;
	if (!take_arguments(env, info, call)) {
		call_free(call);
		napi_throw_type_error(env, "ERR_INVALID_ARG_TYPE", "wrong arguments for this operation");
		return NULL;
	}
	if (napi_create_string_utf8(env, call->operation->name, NAPI_AUTO_LENGTH, &name) != napi_ok ||
	    napi_create_async_work(env, NULL, name, execute, complete, call, &call->work) != napi_ok) {
		call_free(call);
		napi_throw_error(env, NULL, "no async work");
		return NULL;
	}
	if (napi_create_promise(env, &call->deferred, &promise) != napi_ok ||
	    napi_queue_async_work(env, call->work) != napi_ok) {
		napi_delete_async_work(env, call->work);
		call_free(call);
		napi_throw_error(env, NULL, "no async work");
		return NULL;
	}
	return promise;
}

NAPI_MODULE_INIT()
{
	const struct operation *const lists[] = {file_operations, change_operations, disk_operations,
						  mount_operations, image_mount_operations, network_operations,
						  notify_operations, workspace_operations};
	napi_value function;

	for (size_t i = 0; i < sizeof(lists) / sizeof(lists[0]); i++)
		for (const struct operation *at = lists[i]; at->name != NULL; at++)
			if (napi_create_function(env, at->name, NAPI_AUTO_LENGTH, start, (void *)at, &function) != napi_ok ||
			    napi_set_named_property(env, exports, at->name, function) != napi_ok)
				return NULL;
	if (napi_create_function(env, "peerCredentials", NAPI_AUTO_LENGTH, peer_credentials, NULL, &function) != napi_ok ||
	    napi_set_named_property(env, exports, "peerCredentials", function) != napi_ok)
		return NULL;
	return exports;
}
