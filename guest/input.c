#include "input.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>

static size_t until_wrap(size_t from, size_t length)
{
	size_t left = INPUT_WINDOW_BYTES - from;

	return length < left ? length : left;
}

bool input_add(struct input *input, const uint8_t *bytes, size_t length)
{
	/* BOUNDARY: bytes that were written and not yet granted again count as well. */
	if (length > INPUT_WINDOW_BYTES - input->waiting - input->taken)
		return false;
	if (length == 0)
		return true;
	if (input->bytes == NULL && (input->bytes = malloc(INPUT_WINDOW_BYTES)) == NULL)
		return false;
	size_t end = (input->start + input->waiting) % INPUT_WINDOW_BYTES;
	size_t first = until_wrap(end, length);
	memcpy(input->bytes + end, bytes, first);
	if (length > first)
		memcpy(input->bytes, bytes + first, length - first);
	input->waiting += length;
	return true;
}

bool input_feed(struct input *input, int fd)
{
	while (input->waiting > 0) {
		size_t first = until_wrap(input->start, input->waiting);
		const struct iovec parts[] = {
			{.iov_base = input->bytes + input->start, .iov_len = first},
			{.iov_base = input->bytes, .iov_len = input->waiting - first},
		};
		ssize_t put = writev(fd, parts, input->waiting > first ? 2 : 1);
		if (put < 0 && errno == EINTR)
			continue;
		if (put < 0)
			return errno == EAGAIN;
		input->start = (input->start + (size_t)put) % INPUT_WINDOW_BYTES;
		input->waiting -= (size_t)put;
		input->taken += (uint32_t)put;
	}
	return true;
}

void input_forget(struct input *input)
{
	if (input->bytes != NULL)
		explicit_bzero(input->bytes, INPUT_WINDOW_BYTES);
	free(input->bytes);
	*input = (struct input){0};
}
