/* The model of the RTL, whose interface is at the end of tsim/harness.cpp, behind the five functions
 * of a device. Its DRAM answers after LATENCY cycles, with as many bytes as the port takes. */
#include "vta_tsim.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "hardware.h"

#define PAGE 4096u
#define LATENCY 32u
#define CYCLES 10000u /* between two looks at the clock */

enum { FINISHED, RUNNING }; /* results of a run; all others are faults */

typedef struct Tsim Tsim;
Tsim *tsim_new(uint32_t latency, double bandwidth, int jitter, uint64_t seed);
void tsim_free(Tsim *sim);
uint8_t *tsim_dram(Tsim *sim);
void tsim_pages(Tsim *sim, uint64_t address, uint64_t nbytes, int value);
void tsim_reset(Tsim *sim);
void tsim_csr_write(Tsim *sim, uint32_t address, uint32_t value);
uint32_t tsim_csr_read(Tsim *sim, uint32_t address);
int tsim_run(Tsim *sim, uint64_t cycles);

typedef struct simulator {
  Tsim *sim;
  uint32_t end;    /* of what is allocated; behind each allocation is a page that is never in use */
  uint64_t cycles; /* of the launches before */
} simulator;

static int allocate(void *context, uint32_t nbytes, uint32_t *address) {
  simulator *const s = context;
  const uint64_t whole = ((uint64_t)nbytes + PAGE - 1) / PAGE * PAGE;
  if (nbytes == 0 || s->end + whole + 2 * PAGE > 0xffffffffu) return VTA_ERROR_MEMORY;
  *address = s->end + PAGE;
  s->end = (uint32_t)(*address + whole);
  tsim_pages(s->sim, *address, whole, 1);
  return VTA_OK;
}

static int is_inside(const simulator *s, uint32_t address, uint32_t nbytes) {
  return address >= PAGE && address <= s->end && nbytes <= s->end - address;
}

static int write_memory(void *context, uint32_t address, const void *data, uint32_t nbytes) {
  simulator *const s = context;
  if (!is_inside(s, address, nbytes)) return VTA_ERROR_DEVICE;
  memcpy(tsim_dram(s->sim) + address, data, nbytes);
  return VTA_OK;
}

static int read_memory(void *context, uint32_t address, void *data, uint32_t nbytes) {
  simulator *const s = context;
  if (!is_inside(s, address, nbytes)) return VTA_ERROR_DEVICE;
  memcpy(data, tsim_dram(s->sim) + address, nbytes);
  return VTA_OK;
}

static int launch(void *context, uint32_t address, uint32_t count) {
  simulator *const s = context;
  tsim_reset(s->sim);
  tsim_csr_write(s->sim, VTA_RTL_COUNT, count);
  tsim_csr_write(s->sim, VTA_RTL_ADDRESS, address);
  tsim_csr_write(s->sim, VTA_RTL_CONTROL, VTA_RTL_LAUNCH);
  return VTA_OK;
}

static int wait_to_end(void *context, uint32_t milliseconds) {
  simulator *const s = context;
  const clock_t begin = clock();
  int result;
  do {
    result = tsim_run(s->sim, CYCLES);
  } while (result == RUNNING &&
           (double)(clock() - begin) * 1e3 <= (double)milliseconds * CLOCKS_PER_SEC);
  s->cycles += tsim_csr_read(s->sim, VTA_RTL_CYCLES_LOW) |
               (uint64_t)tsim_csr_read(s->sim, VTA_RTL_CYCLES_HIGH) << 32;
  if (result == RUNNING) return VTA_ERROR_TIMEOUT;
  return result == FINISHED && !tsim_csr_read(s->sim, VTA_RTL_TOKENS) ? VTA_OK : VTA_ERROR_FAULT;
}

int vta_tsim_open(vta_device *device) {
  simulator *const s = device ? calloc(1, sizeof *s) : NULL;
  if (!device) return VTA_ERROR_ARGUMENT;
  if (s) s->sim = tsim_new(LATENCY, 0.0, 0, 0);
  if (!s || !s->sim) {
    free(s);
    return VTA_ERROR_MEMORY;
  }
  device->context = s;
  device->config = VTA_CONFIG;
  device->alloc = allocate;
  device->write = write_memory;
  device->read = read_memory;
  device->launch = launch;
  device->wait = wait_to_end;
  return VTA_OK;
}

void vta_tsim_close(vta_device *device) {
  simulator *const s = device->context;
  tsim_free(s->sim);
  free(s);
  device->context = NULL;
}

uint64_t vta_tsim_cycles(const vta_device *device) {
  return ((const simulator *)device->context)->cycles;
}
