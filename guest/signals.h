#ifndef GLOVEBOX_SIGNALS_H
#define GLOVEBOX_SIGNALS_H

/* Gives every signal its default action and unblocks all. Returns 0, or -1 with fail_text. */
int signals_reset(void);

#endif
