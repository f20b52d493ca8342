/* Our RTL of VTA as a device, cycle by cycle: Verilator makes C++ of it (tsim/). */
#ifndef VTA_TSIM_H
#define VTA_TSIM_H

#include "vta.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Makes a device of the configuration that the model was compiled for. A launch may take as many
 * milliseconds of processor time as its timeout says: about 1 for 1000 cycles. */
int vta_tsim_open(vta_device *device);
void vta_tsim_close(vta_device *device);

/* Returns the cycles of all launches. */
uint64_t vta_tsim_cycles(const vta_device *device);

#ifdef __cplusplus
}
#endif

#endif
