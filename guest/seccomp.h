/* The filter on system calls that every process of a jail lives under. The list itself: seccomp-table.h. */
#ifndef GLOVEBOX_SECCOMP_H
#define GLOVEBOX_SECCOMP_H

/* Builds the filter, once, in the guest; jails inherit it by fork. Returns 0, or -1 with fail_text. */
int seccomp_build(void);

/* Installs the filter for the caller, which cannot remove it. Returns 0, or -1 with fail_text. */
int seccomp_load(void);

#endif
