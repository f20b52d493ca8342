/* A VTA on Linux: registers and contiguous memory, mapped from files of the system. */
#ifndef VTA_LINUX_H
#define VTA_LINUX_H

#include "vta_mapped.h"

/* Files are mapped with O_SYNC, and therefore uncached if they are devices, so caches need not be
 * flushed: /dev/mem with an address of registers, or of memory that is excluded from the kernel
 * (mem=...); /dev/uioN; /dev/udmabufN, whose address is in sysfs. */
typedef struct vta_linux {
  vta_design design;
  const char *registers, *memory;          /* paths */
  uint64_t registers_offset, memory_offset; /* in these files */
  uint32_t physical, nbytes;               /* of the memory, as VTA sees it */
  const char *interrupt; /* /dev/uioN whose interrupt says that a launch ended; NULL: polling */

  vta_mapped mapped; /* private */
  int file;          /* private: of the interrupt; -1: none */
  unsigned polls;    /* private */
} vta_linux;

/* Maps the files and creates a device; errno gives the reason for VTA_ERROR_DEVICE. */
int vta_linux_open(vta_linux *board, vta_device *device);
void vta_linux_close(vta_linux *board);

#endif
