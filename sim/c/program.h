/* What the programs of a bundle share: how they end with an error, and the device on which they run,
 * which is the functional simulator, the RTL (VTA_ON_TSIM) or a board (VTA_ON_LINUX) with options:
 *
 *   --design hls|rtl  --registers FILE[@OFFSET]  --memory FILE[@OFFSET]
 *   --physical ADDRESS  --nbytes N     (of that memory, as VTA sees it)
 *   --interrupt FILE                   (a UIO device that says when a launch ends; else polling)
 *   --serial PORT  --patience MS       (a ULX3S there, in place of all these)
 */
#ifndef VTA_PROGRAM_H
#define VTA_PROGRAM_H

#include "vta.h"

/* Says what is wrong, and returns 1. */
int program_fail(const char *what, const char *why);

/* Takes an option of the device; returns 0 if it is none, or has no such value. */
int program_option(const char *name, char *value);

/* Opens the device; returns 1 if that fails, after saying why. */
int program_open(vta_device *device);

/* Closes the device, and says what it has to tell. */
void program_close(vta_device *device);

#endif
