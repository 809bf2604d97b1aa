/* The process at the other end of a UNIX stream socket. */
#ifndef GLOVEBOX_KERNEL_PEER_H
#define GLOVEBOX_KERNEL_PEER_H

#include <node_api.h>

/* peerCredentials(fd: number): { pid, uid, gid } | undefined
 * As the kernel recorded them when the connection was made: unix(7), SO_PEERCRED. Synchronous: it never blocks. */
napi_value peer_credentials(napi_env env, napi_callback_info info);

#endif
