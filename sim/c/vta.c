/* Loading and running a model: the blob's checks, relocation, and the loop over its steps. */
#include "vta.h"

#include <string.h>

#include "vta_blob.h"

#define INSTRUCTION_WORDS 4u
#define CHUNK 32u /* instructions relocated at a time, on the stack */

typedef char vta_header_has_no_holes[sizeof(vta_header) == 112 ? 1 : -1];

const char *vta_text(int status) {
  static const char *const texts[VTA_ERROR_COUNT] = {
      "no error",
      "this is no model, or it is truncated",
      "the model has another version of the format; export it again",
      "this processor is big-endian; models are for little-endian ones",
      "the model is damaged: its CRC does not match",
      "the model contradicts itself; export it again",
      "the device has another configuration than the model was compiled for",
      "the arena is too small, or not aligned to 8 bytes",
      "the device has no room for the model",
      "the device allocated memory that instructions cannot address",
      "the model is not ready; initialise it (again, after an error)",
      "a pointer is missing",
      "the device cannot be reached, or refused a call",
      "the device reports a fault: an invalid access or a deadlock",
      "a launch did not finish in time",
      "the device was reset, or bytes changed on their way: what it held is lost; open it again",
      "the state has no room for the rows of another run; reset it",
  };
  return status >= 0 && status < VTA_ERROR_COUNT ? texts[status] : "unknown status";
}

uint32_t vta_crc32(uint32_t crc, const uint8_t *data, size_t nbytes) {
  static const uint32_t table[16] = {
      0x00000000u, 0x1db71064u, 0x3b6e20c8u, 0x26d930acu, 0x76dc4190u, 0x6b6b51f4u,
      0x4db26158u, 0x5005713cu, 0xedb88320u, 0xf00f9344u, 0xd6d6a3e8u, 0xcb61b38cu,
      0x9b64c2b0u, 0x86d3d2d4u, 0xa00ae278u, 0xbdbdf21cu};
  size_t i;
  crc = ~crc;
  for (i = 0; i < nbytes; ++i) {
    crc ^= data[i];
    crc = (crc >> 4) ^ table[crc & 15];
    crc = (crc >> 4) ^ table[crc & 15];
  }
  return ~crc;
}

static const vta_header *header_of(const vta_model *model) {
  return (const vta_header *)(const void *)model->blob;
}

/* Returns `nbytes` of the blob, at a multiple of 4 bytes; NULL if it does not have that many there. */
static const void *in_blob(const vta_model *model, uint32_t offset, uint64_t nbytes) {
  if (offset % 4 || offset + nbytes > header_of(model)->nbytes) return NULL;
  return model->blob + offset;
}

static const vta_slot *slot_of(const vta_model *model, uint32_t slot, uint64_t nbytes) {
  const vta_header *const header = header_of(model);
  const vta_slot *found;
  if (slot >= header->slots) return NULL;
  found = (const vta_slot *)(const void *)(model->blob + header->slots_at) + slot;
  return nbytes <= found->nbytes ? found : NULL;
}

void *vta_writable(const vta_model *model, uint32_t slot, uint64_t nbytes) {
  const vta_slot *const found = slot_of(model, slot, nbytes);
  if (found && found->kind == VTA_SLOT_ARENA) return model->arena + found->place;
  if (found && found->kind == VTA_SLOT_OUTPUT) return model->outputs[found->place];
  return NULL;
}

const void *vta_readable(const vta_model *model, uint32_t slot, uint64_t nbytes) {
  const vta_slot *const found = slot_of(model, slot, nbytes);
  if (found && found->kind == VTA_SLOT_CONSTANT) return model->blob + found->place;
  if (found && found->kind == VTA_SLOT_INPUT) return model->inputs[found->place];
  return vta_writable(model, slot, nbytes);
}

/* ---------------------------------------------------------------------------- loading */

static int check_header(const void *blob, size_t nbytes) {
  const vta_header *const header = blob;
  if ((uintptr_t)blob % 8 || nbytes < sizeof *header) return VTA_ERROR_BLOB;
  if (header->magic == VTA_MAGIC_SWAPPED) return VTA_ERROR_ENDIAN;
  if (header->magic != VTA_MAGIC) return VTA_ERROR_BLOB;
  if (header->version != VTA_FORMAT_VERSION) return VTA_ERROR_VERSION;
  if (header->nbytes != nbytes) return VTA_ERROR_BLOB;
  if (header->crc != vta_crc32(0, (const uint8_t *)blob + 16, nbytes - 16)) return VTA_ERROR_CRC;
  return VTA_OK;
}

static int fits(uint32_t offset, uint32_t nbytes, uint32_t end) {
  return offset % 4 == 0 && nbytes <= end && offset <= end - nbytes;
}

/* Checks that tables and slots are within bounds. */
static int check_tables(const vta_model *model) {
  const vta_header *const header = header_of(model);
  const vta_slot *slots;
  uint32_t i;
  if (!in_blob(model, header->slots_at, (uint64_t)header->slots * sizeof(vta_slot)) ||
      !in_blob(model, header->buffers_at, (uint64_t)header->buffers * sizeof(vta_buffer)) ||
      !in_blob(model, header->programs_at, (uint64_t)header->programs * sizeof(vta_program)) ||
      !in_blob(model, header->steps_at, (uint64_t)header->step_words * 4) ||
      (uint64_t)header->buffers * 4 > header->arena_nbytes || header->dram_bits < 1 ||
      header->dram_bits > 32 || header->dram_shift > 64 - header->dram_bits) {
    return VTA_ERROR_CONTENT;
  }
  slots = (const vta_slot *)(const void *)(model->blob + header->slots_at);
  for (i = 0; i < header->slots; ++i) {
    const vta_slot slot = slots[i];
    const uint32_t table = header->buffers * 4; /* addresses are at the start of the arena */
    const int valid =
        (slot.kind == VTA_SLOT_ARENA && slot.place >= table && slot.place % 8 == 0 &&
         fits(slot.place, slot.nbytes, header->arena_nbytes)) ||
        (slot.kind == VTA_SLOT_INPUT && slot.place < header->inputs) ||
        (slot.kind == VTA_SLOT_OUTPUT && slot.place < header->outputs) ||
        (slot.kind == VTA_SLOT_CONSTANT && slot.place % 8 == 0 &&
         fits(slot.place, slot.nbytes, header->nbytes));
    if (!valid) return VTA_ERROR_CONTENT;
  }
  return VTA_OK;
}

static int fill(const vta_model *model, uint32_t address, uint32_t word, uint32_t nbytes) {
  uint32_t words[64], done, i;
  for (i = 0; i < 64; ++i) words[i] = word;
  for (done = 0; done < nbytes; done += (uint32_t)sizeof words) {
    const uint32_t left = nbytes - done;
    const uint32_t part = left < sizeof words ? left : (uint32_t)sizeof words;
    const int status = model->device->write(model->device->context, address + done, words, part);
    if (status) return status;
  }
  return VTA_OK;
}

/* Writes what a buffer holds at first. */
static int write_image(const vta_model *model, const vta_buffer *buffers, uint32_t number) {
  const vta_buffer buffer = buffers[number];
  const void *const image = in_blob(model, buffer.place, buffer.nbytes);
  if (!image) return VTA_ERROR_CONTENT;
  return model->device->write(model->device->context, model->addresses[number], image,
                              buffer.nbytes);
}

/* Gives a buffer its address and its content. */
static int place_buffer(const vta_model *model, const vta_buffer *buffers, uint32_t number) {
  const vta_buffer buffer = buffers[number];
  const vta_device *const device = model->device;
  uint32_t *const address = model->addresses + number;
  int status;
  if (buffer.kind == VTA_BUFFER_PART) {
    if (buffer.place >= number || !fits(buffer.offset, buffer.nbytes, buffers[buffer.place].nbytes))
      return VTA_ERROR_CONTENT;
    *address = model->addresses[buffer.place] + buffer.offset;
    return VTA_OK;
  }
  if (buffer.kind > VTA_BUFFER_STATE || buffer.nbytes == 0) return VTA_ERROR_CONTENT;
  status = device->alloc(device->context, buffer.nbytes, address);
  if (status) return status;
  if (*address % 4096 || *address > 0xffffffffu - buffer.nbytes) return VTA_ERROR_ADDRESS;
  if (buffer.kind == VTA_BUFFER_FILLED) return fill(model, *address, buffer.place, buffer.nbytes);
  if (buffer.kind == VTA_BUFFER_PLAIN) return VTA_OK;
  return write_image(model, buffers, number);
}

/* Adds the address of a buffer to that of an instruction. */
static int relocate(const vta_model *model, uint32_t *words, uint32_t target) {
  const vta_header *const header = header_of(model);
  const uint32_t buffer = target >> 8, unit = target & 255u;
  const uint64_t mask = ((1ull << header->dram_bits) - 1) << header->dram_shift;
  uint64_t low, element;
  if (buffer >= header->buffers || unit > 31) return VTA_ERROR_CONTENT;
  if (model->addresses[buffer] & ((1u << unit) - 1)) return VTA_ERROR_ADDRESS;
  memcpy(&low, words, sizeof low);
  element = ((low & mask) >> header->dram_shift) + (model->addresses[buffer] >> unit);
  if (element >> header->dram_bits) return VTA_ERROR_ADDRESS;
  low = (low & ~mask) | element << header->dram_shift;
  memcpy(words, &low, sizeof low);
  return VTA_OK;
}

/* Writes the instructions of a program, with absolute addresses. */
static int place_program(const vta_model *model, const vta_program *program) {
  const vta_header *const header = header_of(model);
  const vta_buffer *const buffers = (const void *)(model->blob + header->buffers_at);
  const uint32_t count = program->instructions;
  const uint32_t *const words = in_blob(model, program->instructions_at, (uint64_t)count * 16);
  const vta_relocation *const relocations =
      in_blob(model, program->relocations_at, program->relocations * (uint64_t)8);
  uint32_t first, next = 0;
  if (!words || !relocations || program->buffer >= header->buffers ||
      (uint64_t)count * 16 > buffers[program->buffer].nbytes)
    return VTA_ERROR_CONTENT;
  for (first = 0; first < count; first += CHUNK) {
    const uint32_t part = count - first < CHUNK ? count - first : CHUNK;
    uint32_t chunk[CHUNK * INSTRUCTION_WORDS];
    int status;
    memcpy(chunk, words + (size_t)first * INSTRUCTION_WORDS, part * 16);
    for (; next < program->relocations; ++next) {
      const uint32_t row = relocations[next].instruction - first; /* in ascending order */
      if (row >= part) break;
      status = relocate(model, chunk + row * INSTRUCTION_WORDS, relocations[next].target);
      if (status) return status;
    }
    status = model->device->write(model->device->context,
                                  model->addresses[program->buffer] + first * 16, chunk, part * 16);
    if (status) return status;
  }
  return next == program->relocations ? VTA_OK : VTA_ERROR_CONTENT;
}

int vta_init(vta_model *model, const vta_device *device, const void *blob, size_t nbytes,
             void *arena, size_t arena_nbytes) {
  const vta_header *header;
  const vta_program *programs;
  uint32_t i;
  int status;
  if (!model || !device || !blob || !arena) return VTA_ERROR_ARGUMENT;
  memset(model, 0, sizeof *model);
  status = check_header(blob, nbytes);
  if (status) return status;
  header = blob;
  if (header->config != device->config) return VTA_ERROR_CONFIG;
  if ((uintptr_t)arena % 8 || arena_nbytes < header->arena_nbytes) return VTA_ERROR_ARENA;
  model->device = device;
  model->blob = blob;
  model->arena = arena;
  model->addresses = arena;
  model->timeout = VTA_DEFAULT_TIMEOUT;
  status = check_tables(model);
  for (i = 0; !status && i < header->buffers; ++i)
    status = place_buffer(model, (const void *)(model->blob + header->buffers_at), i);
  programs = (const void *)(model->blob + header->programs_at);
  for (i = 0; !status && i < header->programs; ++i) status = place_program(model, programs + i);
  model->ready = !status;
  return status;
}

int vta_reset(vta_model *model) {
  const vta_header *header;
  const vta_buffer *buffers;
  uint32_t i;
  int status = VTA_OK;
  if (!model || !model->ready) return VTA_ERROR_NOT_READY;
  header = header_of(model);
  buffers = (const void *)(model->blob + header->buffers_at);
  for (i = 0; !status && i < header->buffers; ++i) {
    if (buffers[i].kind == VTA_BUFFER_STATE) status = write_image(model, buffers, i);
  }
  model->place = 0;
  model->ready = !status;
  return status;
}

/* Returns the size of the largest slot of a kind and a number. */
static uint32_t largest(const vta_model *model, uint32_t kind, uint32_t number) {
  const vta_header *const header = header_of(model);
  const vta_slot *const slots = (const void *)(model->blob + header->slots_at);
  uint32_t nbytes = 0, i;
  for (i = 0; i < header->slots; ++i) {
    if (slots[i].kind == kind && slots[i].place == number && slots[i].nbytes > nbytes)
      nbytes = slots[i].nbytes;
  }
  return nbytes;
}

uint32_t vta_input_nbytes(const vta_model *model, uint32_t number) {
  return model->ready ? largest(model, VTA_SLOT_INPUT, number) : 0;
}

uint32_t vta_output_nbytes(const vta_model *model, uint32_t number) {
  return model->ready ? largest(model, VTA_SLOT_OUTPUT, number) : 0;
}

/* ---------------------------------------------------------------------------- running */

/* Moves a slot to or from a buffer of the device. */
static int transfer(const vta_model *model, uint32_t kind, const uint32_t *words) {
  const vta_header *const header = header_of(model);
  const vta_buffer *const buffers = (const void *)(model->blob + header->buffers_at);
  const vta_device *const device = model->device;
  const uint32_t slot = words[0], buffer = words[1], nbytes = words[2];
  if (buffer >= header->buffers || nbytes > buffers[buffer].nbytes) return VTA_ERROR_CONTENT;
  if (kind == VTA_STEP_WRITE) {
    const void *const from = vta_readable(model, slot, nbytes);
    if (!from) return VTA_ERROR_CONTENT;
    return device->write(device->context, model->addresses[buffer], from, nbytes);
  } else {
    void *const to = vta_writable(model, slot, nbytes);
    if (!to) return VTA_ERROR_CONTENT;
    return device->read(device->context, model->addresses[buffer], to, nbytes);
  }
}

static int start(const vta_model *model, uint32_t number) {
  const vta_header *const header = header_of(model);
  const vta_program *const programs = (const void *)(model->blob + header->programs_at);
  const vta_device *const device = model->device;
  if (number >= header->programs) return VTA_ERROR_CONTENT;
  return device->launch(device->context, model->addresses[programs[number].buffer],
                        programs[number].instructions);
}

static int wait(const vta_model *model) {
  return model->device->wait(model->device->context, model->timeout);
}

static int launch(const vta_model *model, uint32_t number) {
  const int status = start(model, number);
  return status ? status : wait(model);
}

/* A few bytes of a buffer, read to change some: there are devices that move whole words only. */
typedef struct line {
  uint32_t begin, nbytes;
  uint8_t bytes[64];
} line;

static int write_line(const vta_model *model, uint32_t buffer, const line *held) {
  const vta_device *const device = model->device;
  if (!held->nbytes) return VTA_OK;
  return device->write(device->context, model->addresses[buffer] + held->begin, held->bytes,
                       held->nbytes);
}

/* Holds the line with the byte at a place, in place of the one before. */
static int move_line(const vta_model *model, uint32_t buffer, uint32_t nbytes, line *held,
                     uint32_t at) {
  const vta_device *const device = model->device;
  int status;
  if (at >= nbytes) return VTA_ERROR_CONTENT;
  if (held->nbytes && at / sizeof held->bytes == held->begin / sizeof held->bytes) return VTA_OK;
  status = write_line(model, buffer, held);
  if (status) return status;
  held->begin = at - at % (uint32_t)sizeof held->bytes;
  held->nbytes = nbytes - held->begin < sizeof held->bytes ? nbytes - held->begin
                                                           : (uint32_t)sizeof held->bytes;
  return device->read(device->context, model->addresses[buffer] + held->begin, held->bytes,
                      held->nbytes);
}

static uint32_t word_at(const uint8_t *words, uint32_t number) {
  uint32_t word;
  memcpy(&word, words + (size_t)number * 4, 4);
  return word;
}

/* Writes the rows of a run to their bytes in a buffer: slot, buffer, the slots with where rows begin
 * and where their integers lie behind that, and the number of these. */
static int write_rows(const vta_model *model, const uint32_t *words) {
  const vta_header *const header = header_of(model);
  const vta_buffer *const buffers = (const void *)(model->blob + header->buffers_at);
  const uint32_t buffer = words[1], count = words[4];
  const uint8_t *const values = vta_readable(model, words[0], (uint64_t)header->rows * count);
  const uint8_t *const rows = vta_readable(model, words[2], (uint64_t)header->places * 4);
  const uint8_t *const offsets = vta_readable(model, words[3], (uint64_t)count * 4);
  line held;
  uint32_t row, i;
  int status = VTA_OK;
  if (buffer >= header->buffers || !values || !rows || !offsets) return VTA_ERROR_CONTENT;
  held.nbytes = 0;
  for (row = 0; row < header->rows; ++row) {
    const uint32_t begin = word_at(rows, model->place + row);
    for (i = 0; i < count && !status; ++i) {
      const uint32_t at = begin + word_at(offsets, i);
      status = move_line(model, buffer, buffers[buffer].nbytes, &held, at);
      if (!status) held.bytes[at - held.begin] = values[(size_t)row * count + i];
    }
  }
  return status ? status : write_line(model, buffer, &held);
}

static int step(const vta_model *model, uint32_t kind, const uint32_t *words, uint32_t count) {
  switch (kind) {
    case VTA_STEP_WRITE:
    case VTA_STEP_READ:
      return count == 3 ? transfer(model, kind, words) : VTA_ERROR_CONTENT;
    case VTA_STEP_LAUNCH:
      return count == 1 ? launch(model, words[0]) : VTA_ERROR_CONTENT;
    case VTA_STEP_WRITE_ROWS:
      return count == 5 ? write_rows(model, words) : VTA_ERROR_CONTENT;
    default:
      return vta_host_step(model, kind, words, count);
  }
}

static int check_pointers(const void *const *pointers, uint32_t count) {
  uint32_t i;
  for (i = 0; i < count; ++i) {
    if (!pointers || !pointers[i]) return VTA_ERROR_ARGUMENT;
  }
  return VTA_OK;
}

/* Does the next steps: all, or those before a launch. */
static int advance(vta_model *model, int to_launch) {
  const vta_header *const header = header_of(model);
  const uint32_t *const words = (const void *)(model->blob + header->steps_at);
  int status = VTA_OK;
  while (!status && model->at < header->step_words) {
    const uint32_t kind = words[model->at] & 255u, count = words[model->at] >> 8;
    if (to_launch && kind == VTA_STEP_LAUNCH) break;
    if (count >= header->step_words - model->at) return VTA_ERROR_CONTENT;
    status = step(model, kind, words + model->at + 1, count);
    model->at += count + 1;
  }
  return status;
}

int vta_prepare(vta_model *model, const void *const *inputs, void *const *outputs) {
  const vta_header *header;
  int status;
  if (!model || !model->ready || model->stage) return VTA_ERROR_NOT_READY;
  header = header_of(model);
  status = check_pointers(inputs, header->inputs);
  if (!status) status = check_pointers((const void *const *)outputs, header->outputs);
  if (!status && header->rows > header->places - model->place) status = VTA_ERROR_NO_ROOM;
  if (status) return status;
  model->inputs = inputs;
  model->outputs = outputs;
  model->at = 0;
  status = advance(model, 1);
  model->ready = !status;
  model->stage = 1;
  return status;
}

int vta_start(vta_model *model) {
  const vta_header *header;
  const uint32_t *words;
  if (!model || !model->ready || model->stage != 1) return VTA_ERROR_NOT_READY;
  header = header_of(model);
  words = (const void *)(model->blob + header->steps_at);
  if (model->at < header->step_words) { /* a network of the host alone has no launch */
    const int status = words[model->at] >> 8 == 1 && header->step_words - model->at > 1
                           ? start(model, words[model->at + 1])
                           : VTA_ERROR_CONTENT;
    model->ready = !status;
    if (status) return status;
    model->at += 2;
    model->stage = 2;
  }
  return VTA_OK;
}

int vta_finish(vta_model *model) {
  int status;
  if (!model || !model->ready || !model->stage) return VTA_ERROR_NOT_READY;
  status = model->stage == 2 ? wait(model) : VTA_OK;
  if (!status) status = advance(model, 0);
  model->place += header_of(model)->rows;
  model->ready = !status;
  model->stage = 0;
  return status;
}

int vta_run(vta_model *model, const void *const *inputs, void *const *outputs) {
  const int status = vta_prepare(model, inputs, outputs);
  return status ? status : vta_finish(model);
}
