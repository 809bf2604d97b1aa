#define _GNU_SOURCE
#include "peer.h"

#include <sys/socket.h>

napi_value peer_credentials(napi_env env, napi_callback_info info)
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
