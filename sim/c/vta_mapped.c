/* Registers and memory at addresses. The offsets come from hardware.h, which vtaops generates. */
#include "vta_mapped.h"

#include <string.h>

#include "hardware.h"

#define PAGE 4096u
#define FAILED_POLLS 50 /* in a row; all units may be idle between two instructions */
#define STOP_POLLS 100000

#if defined(__GNUC__)
#define BARRIER() __sync_synchronize()
#else
#define BARRIER() ((void)0) /* the mapping must order accesses to registers and memory */
#endif

enum { FETCH, LOAD, COMPUTE, STORE };

static uint32_t get(const vta_mapped *m, uint32_t page, uint32_t offset) {
  return m->registers[(page * VTA_REGISTER_PAGE + offset) / 4];
}

static void set(const vta_mapped *m, uint32_t page, uint32_t offset, uint32_t value) {
  m->registers[(page * VTA_REGISTER_PAGE + offset) / 4] = value;
}

static int finished(const vta_mapped *m) {
  if (m->design == VTA_DESIGN_HLS) return get(m, COMPUTE, VTA_HLS_COMPUTE_DONE) == 1;
  return (get(m, 0, VTA_RTL_CONTROL) & VTA_RTL_FINISHED) != 0;
}

/* Whether the hardware reports a fault or a deadlock of its units. */
static int failed(const vta_mapped *m) {
  uint32_t control;
  if (m->design == VTA_DESIGN_HLS) return 0;
  if (get(m, 0, VTA_RTL_FAULTS)) return 1;
  control = get(m, 0, VTA_RTL_CONTROL) & (VTA_RTL_FINISHED | VTA_RTL_QUIET);
  return control == VTA_RTL_QUIET && get(m, 0, VTA_RTL_TOKENS) != 0;
}

static void start_hls(vta_mapped *m, uint32_t address, uint32_t count) {
  const uint32_t go = VTA_HLS_START | VTA_HLS_AUTO_RESTART;
  m->launched = address;
  set(m, FETCH, VTA_HLS_FETCH_COUNT, count);
  set(m, FETCH, VTA_HLS_FETCH_ADDRESS, address);
  set(m, LOAD, VTA_HLS_LOAD_INP, 0); /* instructions have absolute addresses */
  set(m, LOAD, VTA_HLS_LOAD_WGT, 0);
  set(m, COMPUTE, VTA_HLS_COMPUTE_UOP, 0);
  set(m, COMPUTE, VTA_HLS_COMPUTE_BIAS, 0);
  set(m, STORE, VTA_HLS_STORE_OUT, 0);
  set(m, FETCH, VTA_HLS_CONTROL, VTA_HLS_START);
  set(m, LOAD, VTA_HLS_CONTROL, go);
  set(m, COMPUTE, VTA_HLS_CONTROL, go);
  set(m, STORE, VTA_HLS_CONTROL, go);
}

static void start_rtl(vta_mapped *m, uint32_t address, uint32_t count) {
  static const uint32_t origins[] = VTA_RTL_ORIGINS;
  size_t i;
  m->launched = address;
  set(m, 0, VTA_RTL_COUNT, count);
  set(m, 0, VTA_RTL_ADDRESS, address);
  for (i = 0; i < sizeof origins / sizeof *origins; ++i) set(m, 0, origins[i], 0);
  set(m, 0, VTA_RTL_CONTROL, VTA_RTL_LAUNCH);
}

static int give_up(vta_mapped *m, int status) {
  m->lost = 1;
  return status;
}

/* Whether the registers hold a launch other than ours, because the logic was reset. */
static int was_reset(const vta_mapped *m) {
  if (m->design == VTA_DESIGN_HLS) return get(m, FETCH, VTA_HLS_FETCH_ADDRESS) != m->launched;
  return get(m, 0, VTA_RTL_ADDRESS) != m->launched;
}

/* Waits until `finished` is `value`. */
static int wait_for(vta_mapped *m, int value, uint32_t milliseconds) {
  const uint32_t begin = m->milliseconds(m->platform);
  int failures = 0;
  while (finished(m) != value) {
    if (was_reset(m)) return give_up(m, VTA_ERROR_LOST);
    failures = failed(m) ? failures + 1 : 0;
    if (failures == FAILED_POLLS) return give_up(m, VTA_ERROR_FAULT);
    if (m->milliseconds(m->platform) - begin > milliseconds && finished(m) != value)
      return give_up(m, VTA_ERROR_TIMEOUT);
    if (m->pause) m->pause(m->platform);
  }
  return VTA_OK;
}

static int allocate(void *context, uint32_t nbytes, uint32_t *address) {
  vta_mapped *const m = context;
  const uint32_t whole = (nbytes + PAGE - 1) / PAGE * PAGE;
  if (nbytes == 0 || whole < nbytes || whole > m->nbytes - m->used) return VTA_ERROR_MEMORY;
  *address = m->physical + m->used;
  m->used += whole;
  return VTA_OK;
}

/* Returns memory if it is within the allocated part; else NULL. */
static uint8_t *memory_at(const vta_mapped *m, uint32_t address, uint32_t nbytes) {
  const uint32_t offset = address - m->physical;
  return nbytes > m->used || offset > m->used - nbytes ? NULL : m->memory + offset;
}

static int write_memory(void *context, uint32_t address, const void *data, uint32_t nbytes) {
  vta_mapped *const m = context;
  uint8_t *const to = memory_at(m, address, nbytes);
  if (!to) return VTA_ERROR_DEVICE;
  memcpy(to, data, nbytes);
  if (m->flush) m->flush(m->platform, to, nbytes);
  return VTA_OK;
}

static int read_memory(void *context, uint32_t address, void *data, uint32_t nbytes) {
  vta_mapped *const m = context;
  uint8_t *const from = memory_at(m, address, nbytes);
  if (!from) return VTA_ERROR_DEVICE;
  if (m->invalidate) m->invalidate(m->platform, from, nbytes);
  memcpy(data, from, nbytes);
  return VTA_OK;
}

static int launch(void *context, uint32_t address, uint32_t count) {
  vta_mapped *const m = context;
  if (m->lost) return VTA_ERROR_DEVICE;
  BARRIER();
  if (m->design == VTA_DESIGN_RTL) {
    /* a launch during a run is ignored, and the end of that run would be mistaken for ours */
    if (get(m, 0, VTA_RTL_CONTROL) & VTA_RTL_RUNNING) return give_up(m, VTA_ERROR_DEVICE);
    start_rtl(m, address, count);
    return VTA_OK;
  }
  if (finished(m)) { /* the flag of the previous run; any other instruction clears it */
    int status;
    start_hls(m, m->physical, 1);
    status = wait_for(m, 0, 1000);
    if (status) return status;
  }
  start_hls(m, address, count);
  return VTA_OK;
}

static int wait_to_end(void *context, uint32_t milliseconds) {
  vta_mapped *const m = context;
  const int status = wait_for(m, 1, milliseconds);
  if (status) return status;
  BARRIER();
  return failed(m) ? give_up(m, VTA_ERROR_FAULT) : VTA_OK;
}

int vta_mapped_device(vta_mapped *m, vta_device *device) {
  static const uint32_t nothing[] = VTA_NOTHING;
  uint32_t address;
  if (!m->registers || !m->memory || !m->milliseconds || m->physical % PAGE ||
      m->nbytes > 0xffffffffu - m->physical)
    return VTA_ERROR_ARGUMENT;
  m->used = 0;
  m->lost = 0;
  device->context = m;
  device->config = VTA_CONFIG;
  device->alloc = allocate;
  device->write = write_memory;
  device->read = read_memory;
  device->launch = launch;
  device->wait = wait_to_end;
  if (allocate(m, PAGE, &address)) return VTA_ERROR_MEMORY; /* the first page holds this instruction */
  return write_memory(m, address, nothing, sizeof nothing);
}

int vta_mapped_stop(vta_mapped *m) {
  int polls;
  if (m->design != VTA_DESIGN_RTL) return VTA_ERROR_DEVICE;
  set(m, 0, VTA_RTL_CONTROL, VTA_RTL_STOP);
  for (polls = 0; polls < STOP_POLLS; ++polls) {
    if (!(get(m, 0, VTA_RTL_CONTROL) & VTA_RTL_STOPPING)) return VTA_OK;
  }
  return VTA_ERROR_DEVICE;
}
