/* A VTA whose registers and memory the processor accesses at addresses: directly on bare metal, on
 * Linux as mapped by vta_linux.c. */
#ifndef VTA_MAPPED_H
#define VTA_MAPPED_H

#include "vta.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum vta_design { VTA_DESIGN_HLS, VTA_DESIGN_RTL } vta_design;

/* Zero it, then set the fields up to `platform`, and those that the platform needs. */
typedef struct vta_mapped {
  vta_design design;
  volatile uint32_t *registers; /* HLS: four pages in a row; RTL: one */
  uint8_t *memory;              /* contiguous; the processor's address */
  uint32_t physical;            /* its address as VTA sees it: a multiple of 4096 */
  uint32_t nbytes;
  uint32_t (*milliseconds)(void *platform); /* a clock that only rises; it may wrap */

  void *platform;                 /* passed to these, which may be NULL: */
  void (*pause)(void *platform);  /* yields the processor between polls */
  void (*flush)(void *platform, const void *data, uint32_t nbytes);  /* cache to memory */
  void (*invalidate)(void *platform, void *data, uint32_t nbytes);   /* memory to cache */

  uint32_t used, launched; /* private */
  int lost;                /* private: a launch failed */
} vta_mapped;

/* Creates a device from it, with no memory in use. After VTA_ERROR_TIMEOUT, _FAULT or _LOST,
 * program the logic again (the RTL: vta_mapped_stop), call this again, and initialise the model
 * again. */
int vta_mapped_device(vta_mapped *mapped, vta_device *device);

/* Stops the RTL; VTA_ERROR_DEVICE if it does not stop, or is another design. */
int vta_mapped_stop(vta_mapped *mapped);

#ifdef __cplusplus
}
#endif

#endif
