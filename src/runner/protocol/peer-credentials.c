/* Node-API addon: who is at the other end of a UNIX stream socket.
 * The kernel fixes the answer when the connection is made: unix(7), SO_PEERCRED. */
#define _GNU_SOURCE
#include <node_api.h>
#include <sys/socket.h>

/* peerCredentials(fd: number): { pid, uid, gid } | undefined */
static napi_value peer_credentials(napi_env env, napi_callback_info info)
{
	size_t argc = 1;
	napi_value argument, result, number;
	int32_t fd;
	struct ucred peer;
	socklen_t size = sizeof peer;

	if (napi_get_cb_info(env, info, &argc, &argument, NULL, NULL) != napi_ok || argc != 1 ||
	    napi_get_value_int32(env, argument, &fd) != napi_ok) {
		napi_throw_type_error(env, NULL, "peerCredentials takes a file descriptor");
		return NULL;
	}
	if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) < 0 || size != sizeof peer)
		return NULL;
	if (napi_create_object(env, &result) != napi_ok ||
	    napi_create_int32(env, peer.pid, &number) != napi_ok ||
	    napi_set_named_property(env, result, "pid", number) != napi_ok ||
	    napi_create_uint32(env, peer.uid, &number) != napi_ok ||
	    napi_set_named_property(env, result, "uid", number) != napi_ok ||
	    napi_create_uint32(env, peer.gid, &number) != napi_ok ||
	    napi_set_named_property(env, result, "gid", number) != napi_ok)
		return NULL;
	return result;
}

NAPI_MODULE_INIT()
{
	napi_value function;

	if (napi_create_function(env, "peerCredentials", NAPI_AUTO_LENGTH, peer_credentials, NULL, &function) != napi_ok ||
	    napi_set_named_property(env, exports, "peerCredentials", function) != napi_ok)
		return NULL;
	return exports;
}
