/* What a writable overlay would show if its upper directory was another one: looked up in the layers themselves. */
#ifndef GLOVEBOX_AGENT_LAYERS_H
#define GLOVEBOX_AGENT_LAYERS_H

#include <stdbool.h>
#include <sys/stat.h>

#define LOWER_LAYERS 2 /* `top` of a stored image, and the image */

/* One directory, in all layers in which it exists. Descriptors are -1 where it does not. */
struct layers {
	int now;  /* in the upper directory that is mounted */
	int then; /* in the upper directory of the earlier state */
	int lower[LOWER_LAYERS];
	const char *part; /* the overlay */
	const char *path; /* of this directory in the overlay, without a leading slash */
};

#define LAYERS_NONE {.now = -1, .then = -1, .lower = {-1, -1}}

/* An entry as the earlier state shows it. */
struct shown {
	bool exists;
	int directory; /* the layer's directory that contains it; belongs to `layers` */
	struct stat status;
};

/* Opens a directory of a layer. Returns -1 if the entry is no directory. */
int layers_open(int at, const char *name);

void layers_close(struct layers *layers);

/* Whether an entry of an upper directory stands for nothing. */
bool layers_is_whiteout(const struct stat *status);

/* Whether a directory of an upper directory hides those below it. */
bool layers_is_opaque(int directory);

struct shown layers_find(const struct layers *layers, const char *name);

/* Opens an entry in all layers that contribute to it. `is_hidden_then`: nothing of it is shown in the earlier state. */
void layers_enter(const struct layers *layers, const char *name, const char *path, bool is_hidden_then,
		  struct layers *inner);

#endif
