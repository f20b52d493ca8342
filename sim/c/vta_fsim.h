/* The functional simulator of VTA (fsim/, C++17) as a device: the model runs on any computer. */
#ifndef VTA_FSIM_H
#define VTA_FSIM_H

#include "vta.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Creates a device with the configuration that the model was compiled for. */
int vta_fsim_open(vta_device *device);
void vta_fsim_close(vta_device *device);

/* Returns the simulator's message for the last error. */
const char *vta_fsim_message(const vta_device *device);

#ifdef __cplusplus
}
#endif

#endif
