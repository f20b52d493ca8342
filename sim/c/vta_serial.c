/* Serial port and clock on Linux, for vta_uart.c. */
#define _DEFAULT_SOURCE /* POSIX, and rates above 38400 */

#include "vta_serial.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <termios.h>
#include <time.h>
#include <unistd.h>

#include "hardware.h"

#if VTA_ULX3S_BAUD != 3000000
#error "B3000000 is not the rate of the board"
#endif

#define WRITE_MILLISECONDS 10000

static uint32_t milliseconds(void *platform) {
  struct timespec now;
  (void)platform;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (uint32_t)now.tv_sec * 1000u + (uint32_t)(now.tv_nsec / 1000000);
}

static int is_ready(const vta_serial *s, short events, uint32_t wait) {
  struct pollfd line;
  line.fd = s->file;
  line.events = events;
  return poll(&line, 1, (int)wait) == 1;
}

static int send(void *platform, const uint8_t *data, uint32_t nbytes) {
  const vta_serial *const s = platform;
  while (nbytes) {
    ssize_t put;
    if (!is_ready(s, POLLOUT, WRITE_MILLISECONDS)) return VTA_ERROR_DEVICE;
    put = write(s->file, data, nbytes);
    if (put < 0 && errno == EAGAIN) continue;
    if (put <= 0) return VTA_ERROR_DEVICE;
    data += put;
    nbytes -= (uint32_t)put;
  }
  return VTA_OK;
}

static uint32_t receive(void *platform, uint8_t *data, uint32_t nbytes, uint32_t wait) {
  const vta_serial *const s = platform;
  uint32_t found = 0;
  while (found < nbytes && is_ready(s, POLLIN, wait)) {
    const ssize_t got = read(s->file, data + found, nbytes - found);
    if (got < 0 && errno == EAGAIN) continue;
    if (got <= 0) break;
    found += (uint32_t)got;
  }
  return found;
}

/* Raw bytes at the board's rate. */
static int make_raw(int file) {
  struct termios settings;
  if (tcgetattr(file, &settings)) return -1;
  settings.c_iflag = settings.c_oflag = settings.c_lflag = 0;
  settings.c_cflag = CS8 | CREAD | CLOCAL;
  settings.c_cc[VMIN] = 1;
  settings.c_cc[VTIME] = 0;
  if (cfsetispeed(&settings, B3000000) || cfsetospeed(&settings, B3000000)) return -1;
  return tcsetattr(file, TCSANOW, &settings) || tcflush(file, TCIOFLUSH) ? -1 : 0;
}

int vta_serial_open(vta_serial *s, vta_device *device) {
  vta_uart *const u = &s->uart;
  int status;
  memset(u, 0, sizeof *u);
  s->file = open(s->path, O_RDWR | O_NOCTTY | O_NONBLOCK);
  if (s->file < 0) return VTA_ERROR_DEVICE;
  u->send = send;
  u->receive = receive;
  u->milliseconds = milliseconds;
  u->platform = s;
  u->patience = s->patience;
  status = make_raw(s->file) ? VTA_ERROR_DEVICE : vta_uart_device(u, device);
  if (status) vta_serial_close(s);
  return status;
}

void vta_serial_close(vta_serial *s) {
  if (s->file >= 0) close(s->file);
  s->file = -1;
}
