/* Reports of the zygote to the guest. */
#ifndef GLOVEBOX_PYTHON_REPORT_H
#define GLOVEBOX_PYTHON_REPORT_H

#include <stdint.h>

#define EXIT_ZYGOTE_FAILED 70

void report_send(uint8_t word, int32_t pid, int32_t status);

/* Reports why there is no zygote, and exits. */
_Noreturn void report_failure(const char *why);

#endif
