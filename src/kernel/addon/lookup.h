#ifndef GLOVEBOX_KERNEL_LOOKUP_H
#define GLOVEBOX_KERNEL_LOOKUP_H

/* Leads connections of the namespace of the calling thread to any address except loopback to two listeners.
 * six is -1 without IPv6. Returns a descriptor of the link, whose end ends that, or -1 with errno. */
int lookup_attach(int namespace, int four, int six);

#endif
