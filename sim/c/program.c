/* The device of a program, and its options: see program.h. */
#include "program.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifdef VTA_ON_LINUX
#include "hardware.h"
#include "vta_linux.h"
#include "vta_serial.h"
#elif defined(VTA_ON_TSIM)
#include "vta_tsim.h"
#else
#include "vta_fsim.h"
#endif

int program_fail(const char *what, const char *why) {
  fprintf(stderr, "error: %s: %s\n", what, why);
  return 1;
}

#ifdef VTA_ON_LINUX

static vta_linux board = {
    .registers = "/dev/mem", .memory = "/dev/mem", .registers_offset = VTA_REGISTERS_AT};
static vta_serial serial;

/* Splits FILE@OFFSET in place. */
static const char *file_at(char *text, uint64_t *offset) {
  char *const at = strrchr(text, '@');
  if (at) {
    *at = 0;
    *offset = strtoull(at + 1, NULL, 0);
  }
  return text;
}

int program_option(const char *name, char *value) {
  if (strcmp(name, "--design") == 0) {
    board.design = strcmp(value, "rtl") == 0 ? VTA_DESIGN_RTL : VTA_DESIGN_HLS;
    return strcmp(value, "rtl") == 0 || strcmp(value, "hls") == 0;
  }
  if (strcmp(name, "--registers") == 0) {
    board.registers = file_at(value, &board.registers_offset);
  } else if (strcmp(name, "--memory") == 0) {
    board.memory = file_at(value, &board.memory_offset);
  } else if (strcmp(name, "--physical") == 0) {
    board.physical = (uint32_t)strtoul(value, NULL, 0);
  } else if (strcmp(name, "--nbytes") == 0) {
    board.nbytes = (uint32_t)strtoul(value, NULL, 0);
  } else if (strcmp(name, "--interrupt") == 0) {
    board.interrupt = value;
  } else if (strcmp(name, "--serial") == 0) {
    serial.path = value;
  } else if (strcmp(name, "--patience") == 0) {
    serial.patience = (uint32_t)strtoul(value, NULL, 10);
  } else {
    return 0;
  }
  return 1;
}

static int open_device(vta_device *device) {
  return serial.path ? vta_serial_open(&serial, device) : vta_linux_open(&board, device);
}

/* Whether the options say where the device is. */
static int complete(void) {
  if (serial.path) return 1;
  if (!board.registers_offset && strcmp(board.registers, "/dev/mem") == 0) {
    program_fail("--registers",
                 "the configuration has no address of them; give one (or --serial)");
    return 0;
  }
  if (!board.memory_offset && strcmp(board.memory, "/dev/mem") == 0)
    board.memory_offset = board.physical;
  if (!board.nbytes) {
    program_fail("--physical, --nbytes",
                 "say where the memory for VTA lies (or give --serial)");
    return 0;
  }
  return 1;
}

void program_close(vta_device *device) {
  (void)device;
  if (serial.path) {
    vta_serial_close(&serial);
  } else {
    vta_linux_close(&board);
  }
}

#else

int program_option(const char *name, char *value) {
  (void)name;
  (void)value;
  return 0;
}

static int complete(void) { return 1; }

#ifdef VTA_ON_TSIM

static int open_device(vta_device *device) { return vta_tsim_open(device); }

void program_close(vta_device *device) {
  fprintf(stderr, "%.0f cycles of the RTL\n", (double)vta_tsim_cycles(device));
  vta_tsim_close(device);
}

#else

static int open_device(vta_device *device) { return vta_fsim_open(device); }

void program_close(vta_device *device) {
  if (*vta_fsim_message(device)) fprintf(stderr, "%s\n", vta_fsim_message(device));
  vta_fsim_close(device);
}

#endif
#endif

int program_open(vta_device *device) {
  int status;
  if (!complete()) return 1;
  status = open_device(device);
  return status ? program_fail("the device", vta_text(status)) : 0;
}
