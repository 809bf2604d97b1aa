#include "names.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void names_forget(struct names *names)
{
	for (size_t i = 0; i < names->count; i++)
		free(names->list[i]);
	free(names->list);
}

int names_add(struct names *names, int directory)
{
	struct dirent *entry;
	int copy = directory < 0 ? -1 : openat(directory, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *stream = copy < 0 ? NULL : fdopendir(copy);

	if (stream == NULL) {
		if (copy >= 0)
			close(copy);
		return directory < 0 ? 0 : -1;
	}
	while ((entry = readdir(stream)) != NULL) {
		if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
			continue;
		if (names->count == names->room) {
			size_t room = names->room == 0 ? 64 : names->room * 2;
			char **list = realloc(names->list, room * sizeof(*list));
			if (list == NULL)
				break;
			names->list = list;
			names->room = room;
		}
		if ((names->list[names->count] = strdup(entry->d_name)) == NULL)
			break;
		names->count++;
	}
	closedir(stream);
	return entry == NULL ? 0 : -1;
}

static int compare(const void *one, const void *other)
{
	return strcmp(*(char *const *)one, *(char *const *)other);
}

void names_sort(struct names *names)
{
	if (names->count > 0)
		qsort(names->list, names->count, sizeof(*names->list), compare);
}
