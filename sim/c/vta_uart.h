/* A VTA on a ULX3S: memory and registers accessed over a serial line (UARTBone, with a CRC-32 over
 * all bytes in both directions). The platform provides the line as two functions. */
#ifndef VTA_UART_H
#define VTA_UART_H

#include "vta.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Zero it, then set the fields up to `patience`, which is optional. */
typedef struct vta_uart {
  /* Sends all bytes; returns a vta_status. */
  int (*send)(void *platform, const uint8_t *data, uint32_t nbytes);
  /* Returns the number of bytes received: fewer than requested if none arrives for that long. */
  uint32_t (*receive)(void *platform, uint8_t *data, uint32_t nbytes, uint32_t milliseconds);
  uint32_t (*milliseconds)(void *platform); /* a clock that only rises; it may wrap */
  void *platform;                           /* passed to these */
  uint32_t patience; /* milliseconds without a byte after which the line counts as dead; 0: 1000 */

  uint32_t crc, used; /* private */
  int lost;           /* private: the board's state is unknown */
} vta_uart;

/* Resets the board, starts its SDRAM, and creates a device with no memory in use.
 * VTA_ERROR_DEVICE: no answer, or not a design of vtaops; VTA_ERROR_CONFIG: another one. After
 * VTA_ERROR_LOST, _TIMEOUT or _FAULT call it again, and initialise the model again. */
int vta_uart_device(vta_uart *uart, vta_device *device);

#ifdef __cplusplus
}
#endif

#endif
