/* The jail's network: its own, empty but for the loopback device. */
#ifndef GLOVEBOX_NET_H
#define GLOVEBOX_NET_H

/* Brings `lo` of the caller's network namespace up. Returns 0, or -1 with fail_text. */
int net_loopback_up(void);

#endif
