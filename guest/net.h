/* The jail's network: its own, empty but for the loopback device. */
#ifndef GLOVEBOX_NET_H
#define GLOVEBOX_NET_H

/* Brings `lo` of the caller's network namespace up. Returns 0, or -1 with fail_text. */
int net_loopback_up(void);

/* Limits how many connections that have ended the caller's network namespace keeps for a minute: the kernel charges them
 * to no cgroup, and lists them among the others (socket-queues.ts). `proc` is a procfs whose settings can still be
 * written. Returns 0, or -1 with fail_text. */
int net_limit_ended(const char *proc);

#endif
