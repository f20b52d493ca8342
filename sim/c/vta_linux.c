/* Memory mapping, a clock and a pause on Linux, for vta_mapped.c. */
#define _POSIX_C_SOURCE 200809L
#define _FILE_OFFSET_BITS 64 /* addresses beyond 2**31 are offsets of /dev/mem */

#include "vta_linux.h"

#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "hardware.h"

#define MOMENT 10 /* milliseconds */
#define REGISTERS_NBYTES(design) ((design) == VTA_DESIGN_HLS ? 4 * VTA_REGISTER_PAGE : VTA_REGISTER_PAGE)

static uint32_t milliseconds(void *platform) {
  struct timespec now;
  (void)platform;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (uint32_t)now.tv_sec * 1000u + (uint32_t)(now.tv_nsec / 1000000);
}

/* Waits only in long runs: a sleep may take longer than a short run. Writing 1 unmasks the interrupt,
 * which the kernel masks when it comes; reading takes it. */
static void pause_briefly(void *platform) {
  vta_linux *const board = platform;
  static const struct timespec tenth = {0, 100000};
  if (++board->polls % 256 == 0) nanosleep(&tenth, NULL);
}

/* Waits for an interrupt, but only briefly: the registers say what happened. An interrupt before it
 * is allowed is not lost, because the logic holds its line until the next launch. */
static void await_interrupt(void *platform) {
  vta_linux *const board = platform;
  struct pollfd waited = {board->file, POLLIN, 0};
  uint32_t word = 1; /* allows one; read, it is their number */
  if (write(board->file, &word, sizeof word) != (ssize_t)sizeof word ||
      (poll(&waited, 1, MOMENT) > 0 && read(board->file, &word, sizeof word) <= 0))
    pause_briefly(board);
}

static void *map(const char *path, uint64_t offset, size_t nbytes) {
  const int file = open(path, O_RDWR | O_SYNC);
  void *found;
  if (file < 0) return NULL;
  found = mmap(NULL, nbytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, (off_t)offset);
  close(file);
  return found == MAP_FAILED ? NULL : found;
}

int vta_linux_open(vta_linux *board, vta_device *device) {
  vta_mapped *const m = &board->mapped;
  int status;
  memset(m, 0, sizeof *m);
  board->polls = 0;
  m->design = board->design;
  m->registers = map(board->registers, board->registers_offset, REGISTERS_NBYTES(board->design));
  m->memory = map(board->memory, board->memory_offset, board->nbytes);
  m->physical = board->physical;
  m->nbytes = board->nbytes;
  m->milliseconds = milliseconds;
  board->file = board->interrupt ? open(board->interrupt, O_RDWR | O_NOCTTY) : -1;
  m->pause = board->interrupt ? await_interrupt : pause_briefly;
  m->platform = board;
  status = VTA_ERROR_DEVICE;
  if (m->registers && m->memory && (board->file >= 0 || !board->interrupt))
    status = vta_mapped_device(m, device);
  if (status) vta_linux_close(board);
  return status;
}

void vta_linux_close(vta_linux *board) {
  vta_mapped *const m = &board->mapped;
  if (m->registers) munmap((void *)(uintptr_t)m->registers, REGISTERS_NBYTES(m->design));
  if (m->memory) munmap(m->memory, m->nbytes);
  if (board->file >= 0) close(board->file);
  board->file = -1;
  memset(m, 0, sizeof *m);
}
