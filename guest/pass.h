/* Messages that carry descriptors over a UNIX socket. */
#ifndef GLOVEBOX_PASS_H
#define GLOVEBOX_PASS_H

#include <stddef.h>

#define PASSED_MAX 16

/* Sends one message with `count` descriptors. Returns 0, or -1 with errno. */
int pass_send(int socket, const void *body, size_t length, const int *passed, size_t count);

/* Receives one message of exactly this length with at most `most` descriptors, which are close-on-exec, and says how many
 * came; blocks if the socket does. Returns 1, 0 at the end, or -1 with errno: then no descriptor is held. */
int pass_receive(int socket, void *body, size_t length, int *passed, size_t most, size_t *count);

#endif
