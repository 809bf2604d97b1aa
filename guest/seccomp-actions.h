/* The actions of seccomp-table.h. Each function writes its part of the filter, which ends with an answer whatever the
 * arguments are. */
#ifndef GLOVEBOX_SECCOMP_ACTIONS_H
#define GLOVEBOX_SECCOMP_ACTIONS_H

void allow(void);
void nothing(void);
void eperm(void);
void missing(void); /* for what is not in the table */
void check_clone(void);
void check_fadvise(void);
void check_fallocate(void);
void check_getsockopt(void);
void check_ioctl(void);
void check_madvise(void);
void check_memfd_create(void);
void check_mknod(void);
void check_mknodat(void);
void check_mmap(void);
void check_personality(void);
void check_prctl(void);
void check_seccomp(void);
void check_setsockopt(void);
void check_socket(void);
void check_socketpair(void);

#endif
