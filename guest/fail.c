#include "fail.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static char text[FAIL_TEXT_BYTES] = "no failure";

int fail(const char *format, ...)
{
	int error = errno;
	va_list arguments;

	va_start(arguments, format);
	int used = vsnprintf(text, sizeof(text), format, arguments);
	va_end(arguments);
	if (used >= 0 && (size_t)used < sizeof(text))
		snprintf(text + used, sizeof(text) - (size_t)used, ": %s", strerror(error));
	return -1;
}

const char *fail_text(void)
{
	return text;
}
