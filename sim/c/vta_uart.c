/* Access to a board's bus over a serial line. A command is one byte for its kind, one for the number
 * of words, and the number of the first word; numbers are big-endian. While the CRCs of both ends
 * agree, every byte has arrived and the board has not been reset. If they differ, any address may
 * hold wrong data, so nothing is repeated: the board must be reset. */
#include "vta_uart.h"

#include <string.h>

#include "hardware.h"
#include "vta_blob.h"

#define WRITE 1u
#define READ 2u
#define WRITE_FIXED 3u         /* all words to one address */
#define MOST_WORDS 255u   /* per command */
#define CHECKED_COMMANDS 16u /* between two checks */
#define PIECE_WORDS 64u
#define SYNC_TRIES 4
#define RESET_MILLISECONDS 50u
#define FAILED_POLLS 3 /* in a row; one poll reads its registers at different times */
#define PAGE 4096u
#define LEAST_SAVING 128u /* bytes; more than the commands that fill take */
#define STATE_WORDS (VTA_RTL_CYCLES_HIGH / 4 + 1)

static const uint32_t identity[] = VTA_ULX3S_IDENTITY; /* version, kHz, and two of the design */

static void put(uint8_t *to, uint32_t word) {
  to[0] = (uint8_t)(word >> 24);
  to[1] = (uint8_t)(word >> 16);
  to[2] = (uint8_t)(word >> 8);
  to[3] = (uint8_t)word;
}

static uint32_t get(const uint8_t *from) {
  return (uint32_t)from[0] << 24 | (uint32_t)from[1] << 16 | (uint32_t)from[2] << 8 | from[3];
}

static int gone(vta_uart *u, int status) {
  u->lost = 1;
  return status;
}

/* ---------------------------------------------------------------------------- the line */

static int send(vta_uart *u, const uint8_t *data, uint32_t nbytes) {
  u->crc = vta_crc32(u->crc, data, nbytes);
  return u->send(u->platform, data, nbytes) ? gone(u, VTA_ERROR_DEVICE) : VTA_OK;
}

static int receive(vta_uart *u, uint8_t *data, uint32_t nbytes) {
  if (u->receive(u->platform, data, nbytes, u->patience) < nbytes) return gone(u, VTA_ERROR_DEVICE);
  u->crc = vta_crc32(u->crc, data, nbytes);
  return VTA_OK;
}

static void make_command(uint8_t *to, uint32_t kind, uint32_t words, uint32_t address) {
  to[0] = (uint8_t)kind;
  to[1] = (uint8_t)words;
  put(to + 2, address / 4);
}

static int send_command(vta_uart *u, uint32_t kind, uint32_t words, uint32_t address) {
  uint8_t command[6];
  make_command(command, kind, words, address);
  return send(u, command, sizeof command);
}

/* Reads a word before a check has covered its value. */
static int ask(vta_uart *u, uint32_t address, uint32_t *word) {
  uint8_t bytes[4];
  int status = send_command(u, READ, 1, address);
  if (!status) status = receive(u, bytes, sizeof bytes);
  if (!status) *word = get(bytes);
  return status;
}

/* Compares the CRC over all bytes with the board's. */
static int check(vta_uart *u) {
  uint32_t expected, found = 0;
  uint8_t command[6];
  int status;
  make_command(command, READ, 1, VTA_ULX3S_LINK_CRC);
  expected = vta_crc32(u->crc, command, sizeof command);
  status = ask(u, VTA_ULX3S_LINK_CRC, &found);
  if (status) return status;
  return found == expected ? VTA_OK : gone(u, VTA_ERROR_LOST);
}

/* Converts this processor's words to bytes of the line, or back. */
static void swap(uint8_t *bytes, uint32_t words) {
  uint32_t i;
  for (i = 0; i < words; ++i) {
    uint32_t word;
    memcpy(&word, bytes + 4 * i, 4);
    put(bytes + 4 * i, word);
  }
}

/* Copies words between the bus and this processor's memory, in little-endian order. */
static int move(vta_uart *u, uint32_t kind, uint32_t address, uint8_t *to, const uint8_t *from,
                uint32_t words) {
  uint32_t done = 0, commands = 0, left = 0;
  int status = u->lost ? VTA_ERROR_LOST : VTA_OK;
  while (!status && done < words) {
    uint8_t piece[4 * PIECE_WORDS];
    uint32_t part;
    if (!left) { /* the next command */
      left = words - done < MOST_WORDS ? words - done : MOST_WORDS;
      status = send_command(u, kind, left, kind == WRITE_FIXED ? address : address + 4 * done);
    }
    part = left < PIECE_WORDS ? left : PIECE_WORDS;
    if (!status && kind != READ) {
      memcpy(piece, from + 4 * done, 4 * part);
      swap(piece, part);
      status = send(u, piece, 4 * part);
    } else if (!status) {
      status = receive(u, piece, 4 * part);
      swap(piece, part);
      memcpy(to + 4 * done, piece, 4 * part);
    }
    done += part;
    left -= part;
    if (!status && !left && kind != READ && ++commands % CHECKED_COMMANDS == 0) status = check(u);
  }
  return status ? status : check(u);
}

static int read_words(vta_uart *u, uint32_t address, uint32_t *words, uint32_t count) {
  return move(u, READ, address, (uint8_t *)words, NULL, count);
}

static int set(vta_uart *u, uint32_t address, uint32_t word) {
  return move(u, WRITE, address, NULL, (const uint8_t *)&word, 1);
}

/* -------------------------------------------------------------------------- the device */

static int allocate(void *context, uint32_t nbytes, uint32_t *address) {
  vta_uart *const u = context;
  const uint32_t whole = (nbytes + PAGE - 1) / PAGE * PAGE;
  if (nbytes == 0 || whole < nbytes || whole > VTA_ULX3S_MEMORY_NBYTES - u->used)
    return VTA_ERROR_MEMORY;
  *address = u->used;
  u->used += whole;
  return VTA_OK;
}

static int inside(const vta_uart *u, uint32_t address, uint32_t nbytes) {
  return address % 4 == 0 && nbytes <= u->used && address <= u->used - nbytes;
}

/* Copies the bytes after the last whole word, without changing the rest of their word. */
static int move_rest(vta_uart *u, uint32_t kind, uint32_t address, uint8_t *to, const uint8_t *from,
                     uint32_t nbytes) {
  uint32_t word;
  int status;
  if (!nbytes) return VTA_OK;
  status = read_words(u, address, &word, 1);
  if (status) return status;
  if (kind == READ) {
    memcpy(to, &word, nbytes);
    return VTA_OK;
  }
  memcpy(&word, from, nbytes);
  return set(u, address, word);
}

/* Returns the number of lanes before those that are zeros in every tile. */
static uint32_t used_lanes(const uint8_t *data, uint32_t nbytes, uint32_t block) {
  uint32_t used = 0, i;
  for (i = 0; i < nbytes && used < block; ++i)
    if (data[i] && i % block >= used) used = i % block + 1;
  return used;
}

/* Lets the board write tiles, of which only the first lanes are sent; the others become zeros. */
static int fill(vta_uart *u, uint32_t address, const uint8_t *from, uint32_t nbytes, uint32_t lanes,
                uint32_t block) {
  uint32_t at = 0, done = 0, begin;
  int status = set(u, VTA_ULX3S_FILL_BASE, address);
  if (!status) status = set(u, VTA_ULX3S_FILL_LENGTH, nbytes);
  if (!status) status = set(u, VTA_ULX3S_LANES_COUNT, lanes);
  if (!status) status = set(u, VTA_ULX3S_FILL_ENABLE, 1);
  while (!status && at < nbytes) {
    uint8_t piece[4 * PIECE_WORDS] = {0};
    uint32_t size = 0;
    for (; size < sizeof piece && at < nbytes; ++at)
      if (at % block < lanes) piece[size++] = from[at];
    status = move(u, WRITE_FIXED, VTA_ULX3S_LANES_DATA, NULL, piece, (size + 3) / 4);
  }
  begin = u->milliseconds(u->platform);
  while (!status && !done) {
    const int late = u->milliseconds(u->platform) - begin > u->patience;
    status = read_words(u, VTA_ULX3S_FILL_DONE, &done, 1);
    if (!status && !done && late) status = gone(u, VTA_ERROR_TIMEOUT);
  }
  return status ? status : set(u, VTA_ULX3S_FILL_ENABLE, 0);
}

static int write_memory(void *context, uint32_t address, const void *data, uint32_t nbytes) {
  vta_uart *const u = context;
  const uint32_t at = VTA_ULX3S_MEMORY + address, rest = nbytes % 4, whole = nbytes - rest;
  const uint32_t block = 1u << (identity[3] >> 8 & 0xFF), lanes = used_lanes(data, nbytes, block);
  const uint8_t *const from = data;
  int status;
  if (!inside(u, address, nbytes)) return VTA_ERROR_DEVICE;
  if (nbytes % block == 0 && nbytes / block * (block - lanes) > LEAST_SAVING)
    return fill(u, address, from, nbytes, lanes, block);
  status = move(u, WRITE, at, NULL, from, whole / 4);
  return status ? status : move_rest(u, WRITE, at + whole, NULL, from + whole, rest);
}

static int read_memory(void *context, uint32_t address, void *data, uint32_t nbytes) {
  vta_uart *const u = context;
  const uint32_t at = VTA_ULX3S_MEMORY + address, rest = nbytes % 4, whole = nbytes - rest;
  uint8_t *const to = data;
  int status;
  if (!inside(u, address, nbytes)) return VTA_ERROR_DEVICE;
  status = move(u, READ, at, to, NULL, whole / 4);
  return status ? status : move_rest(u, READ, at + whole, to + whole, NULL, rest);
}

static int launch(void *context, uint32_t address, uint32_t count) {
  static const uint32_t origins[] = VTA_RTL_ORIGINS;
  vta_uart *const u = context;
  uint32_t control;
  size_t i;
  int status = read_words(u, VTA_ULX3S_VTA + VTA_RTL_CONTROL, &control, 1);
  if (!status && control & VTA_RTL_RUNNING) status = gone(u, VTA_ERROR_DEVICE);
  if (!status) status = set(u, VTA_ULX3S_VTA + VTA_RTL_COUNT, count);
  if (!status) status = set(u, VTA_ULX3S_VTA + VTA_RTL_ADDRESS, address);
  for (i = 0; !status && i < sizeof origins / sizeof *origins; ++i)
    status = set(u, VTA_ULX3S_VTA + origins[i], 0);
  return status ? status : set(u, VTA_ULX3S_VTA + VTA_RTL_CONTROL, VTA_RTL_LAUNCH);
}

/* Whether the hardware reports a fault or a deadlock of its units. */
static int failed(const uint32_t *state) {
  const uint32_t control = state[VTA_RTL_CONTROL / 4] & (VTA_RTL_FINISHED | VTA_RTL_QUIET);
  return state[VTA_RTL_FAULTS / 4] || (control == VTA_RTL_QUIET && state[VTA_RTL_TOKENS / 4]);
}

static int wait_to_end(void *context, uint32_t milliseconds) {
  vta_uart *const u = context;
  const uint32_t begin = u->milliseconds(u->platform);
  int failures = 0;
  for (;;) {
    const int late = u->milliseconds(u->platform) - begin > milliseconds;
    uint32_t state[STATE_WORDS];
    const int status = read_words(u, VTA_ULX3S_VTA, state, STATE_WORDS);
    if (status) return status;
    failures = failed(state) ? failures + 1 : 0;
    if (state[VTA_RTL_CONTROL / 4] & VTA_RTL_FINISHED)
      return failures ? gone(u, VTA_ERROR_FAULT) : VTA_OK;
    if (failures == FAILED_POLLS) return gone(u, VTA_ERROR_FAULT);
    if (late) return gone(u, VTA_ERROR_TIMEOUT);
  }
}

/* ------------------------------------------------------------------------------- opening */

/* Polls until the board answers; during the pauses it drops an incomplete command. */
static int synchronise(vta_uart *u) {
  uint8_t question[6], answer[4];
  int tries;
  make_command(question, READ, 1, VTA_ULX3S_IDENTITY_WORD0);
  for (tries = 0; tries < SYNC_TRIES; ++tries) {
    if (u->send(u->platform, question, sizeof question)) return VTA_ERROR_DEVICE;
    if (u->receive(u->platform, answer, sizeof answer, u->patience) == sizeof answer) return VTA_OK;
  }
  return VTA_ERROR_DEVICE;
}

/* Drops late answers; later checks detect a line that sends without end. */
static void drain(vta_uart *u, uint32_t milliseconds) {
  const uint32_t begin = u->milliseconds(u->platform);
  uint8_t late[16];
  while (u->receive(u->platform, late, sizeof late, milliseconds))
    if (u->milliseconds(u->platform) - begin > u->patience) return;
}

/* Synchronises with the board, resets it, and restarts the byte count. */
static int recover(vta_uart *u) {
  uint8_t reset[10], bytes[4];
  uint32_t found;
  int status = synchronise(u);
  if (status) return status;
  make_command(reset, WRITE, 1, VTA_ULX3S_CTRL_RESET);
  put(reset + 6, 1);
  if (u->send(u->platform, reset, sizeof reset)) return VTA_ERROR_DEVICE;
  drain(u, RESET_MILLISECONDS); /* the board's clock restarts */
  status = synchronise(u);
  if (status) return status;
  drain(u, 0);
  u->lost = 0;
  status = ask(u, VTA_ULX3S_LINK_CRC, &found);
  if (status) return status;
  put(bytes, found);
  u->crc = vta_crc32(found, bytes, sizeof bytes);
  return check(u);
}

/* Initialises the SDRAM after power-on as its data sheet requires. */
static int start_sdram(vta_uart *u, uint32_t kilohertz) {
  static const struct {
    uint32_t address, value;
  } slow[] = VTA_ULX3S_SDRAM_START_CL2, fast[] = VTA_ULX3S_SDRAM_START_CL3;
  size_t i;
  int status = VTA_OK;
  for (i = 0; !status && i < sizeof slow / sizeof *slow; ++i)
    status = set(u, slow[i].address, kilohertz <= 50000 ? slow[i].value : fast[i].value);
  return status;
}

int vta_uart_device(vta_uart *u, vta_device *device) {
  uint32_t words[4] = {0};
  int status;
  if (!u->send || !u->receive || !u->milliseconds) return VTA_ERROR_ARGUMENT;
  if (!u->patience) u->patience = 1000;
  u->used = PAGE; /* address 0 is never used */
  device->context = u;
  device->config = VTA_CONFIG;
  device->alloc = allocate;
  device->write = write_memory;
  device->read = read_memory;
  device->launch = launch;
  device->wait = wait_to_end;
  u->lost = 1;
  status = recover(u);
  if (!status) status = read_words(u, VTA_ULX3S_IDENTITY_WORD0, words, 4);
  if (!status && words[0] != identity[0]) status = gone(u, VTA_ERROR_DEVICE);
  if (!status && (words[2] != identity[2] || words[3] != identity[3]))
    status = gone(u, VTA_ERROR_CONFIG);
  return status ? status : start_sdram(u, words[1]);
}
