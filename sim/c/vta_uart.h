/* A VTA on a ULX3S: its memory and registers over a serial line (UARTBone, with a CRC-32 over all
 * bytes in both directions). The line is two functions of the platform. */
#ifndef VTA_UART_H
#define VTA_UART_H

#include "vta.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Fill it with zeros, then set the fields up to `patience`, which may stay. */
typedef struct vta_uart {
  /* Sends all bytes; returns a vta_status. */
  int (*send)(void *platform, const uint8_t *data, uint32_t nbytes);
  /* Returns the number of bytes received: fewer than asked for if none comes for so long. */
  uint32_t (*receive)(void *platform, uint8_t *data, uint32_t nbytes, uint32_t milliseconds);
  uint32_t (*milliseconds)(void *platform); /* a clock that only rises; it may wrap */
  void *platform;                           /* handed to these */
  uint32_t patience; /* milliseconds without a byte after which the line is dead; 0: 1000 */

  uint32_t crc, used; /* private */
  int lost;           /* private: what the board holds is unknown */
} vta_uart;

/* Resets the board, starts its SDRAM, and makes a device of it, with no memory in use.
 * VTA_ERROR_DEVICE: nothing answers, or no design of vtaops; VTA_ERROR_CONFIG: another one. After
 * VTA_ERROR_LOST, _TIMEOUT or _FAULT call it again, and initialise the model again. */
int vta_uart_device(vta_uart *uart, vta_device *device);

#ifdef __cplusplus
}
#endif

#endif
