/* Descriptors that must not be inherited. */
#ifndef GLOVEBOX_DESCRIPTORS_H
#define GLOVEBOX_DESCRIPTORS_H

/* Closes every descriptor from `lowest` on. Returns 0, or -1 with fail_text. */
int descriptors_close_from(int lowest);

/* The same, but for those from `first` to `last` above it. */
int descriptors_close_from_but(int lowest, int first, int last);

#endif
