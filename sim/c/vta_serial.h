/* A ULX3S at a serial port of Linux, or the virtual one at a pseudo-terminal. */
#ifndef VTA_SERIAL_H
#define VTA_SERIAL_H

#include "vta_uart.h"

typedef struct vta_serial {
  const char *path;  /* /dev/ttyUSB0, for example */
  uint32_t patience; /* milliseconds without a byte after which it counts as dead; 0: 1000 */

  vta_uart uart; /* private */
  int file;
} vta_serial;

/* Opens the port and creates a device; errno gives the reason for VTA_ERROR_DEVICE. */
int vta_serial_open(vta_serial *serial, vta_device *device);
void vta_serial_close(vta_serial *serial);

#endif
