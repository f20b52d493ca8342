/* The format of a blob, as written by vtaops/model/export: 32-bit words, little-endian.
 *
 * A blob is a header, tables, and constants, at offsets in bytes from its start:
 *
 *   slots      operands of steps: parts of the arena, inputs, outputs, constants
 *   buffers    memory of the device, with its content when the model is loaded
 *   programs   instructions with their relocations
 *   steps      the operations of a run, in order
 *
 * A step is a word, with its kind in the low byte and above it the number of words that follow, and
 * then those words.
 */
#ifndef VTA_BLOB_H
#define VTA_BLOB_H

#include "vta.h"

#define VTA_MAGIC 0x43415456u /* "VTAC" */
#define VTA_MAGIC_SWAPPED 0x56544143u
#define VTA_FORMAT_VERSION 4u
#define VTA_NONE 0xffffffffu /* no slot */
#define VTA_MAX_RANK 8u

typedef struct vta_header {
  uint32_t magic, version, nbytes;
  uint32_t crc;        /* CRC-32 of all bytes after this word */
  uint8_t sha256[32];  /* of all bytes after the header */
  uint32_t config;     /* of the hardware */
  uint32_t dram_shift; /* the DRAM address of a LOAD or STORE: its lowest bit and its width, in */
  uint32_t dram_bits;  /* the low half of the instruction */
  uint32_t arena_nbytes;
  uint32_t inputs, outputs;
  uint32_t slots_at, slots;
  uint32_t buffers_at, buffers;
  uint32_t programs_at, programs;
  uint32_t steps_at, step_words;
  uint32_t rows, places; /* rows of state that a run writes, and for how many there is room */
} vta_header;

enum { VTA_SLOT_ARENA, VTA_SLOT_INPUT, VTA_SLOT_OUTPUT, VTA_SLOT_CONSTANT };

typedef struct vta_slot {
  uint32_t kind;
  uint32_t place; /* offset in the arena or the blob; or number of the input or output */
  uint32_t nbytes;
} vta_slot;

enum { VTA_BUFFER_PLAIN, VTA_BUFFER_IMAGE, VTA_BUFFER_FILLED, VTA_BUFFER_PART, VTA_BUFFER_STATE };

typedef struct vta_buffer {
  uint32_t kind;
  uint32_t place;  /* IMAGE, STATE: offset in the blob; FILLED: the word; PART: one before it */
  uint32_t offset; /* PART: first byte in that buffer */
  uint32_t nbytes;
} vta_buffer;

typedef struct vta_program {
  uint32_t buffer; /* holds the instructions on the device */
  uint32_t instructions_at, instructions;
  uint32_t relocations_at, relocations;
} vta_program;

/* The DRAM address of an instruction is relative to a buffer, in elements of 2**unit bytes. */
typedef struct vta_relocation {
  uint32_t instruction;
  uint32_t target; /* buffer << 8 | unit */
} vta_relocation;

enum {
  VTA_STEP_COPY,
  VTA_STEP_WRITE,
  VTA_STEP_READ,
  VTA_STEP_LAUNCH,
  VTA_STEP_CONVOLUTION,
  VTA_STEP_MATMUL,
  VTA_STEP_POOL,
  VTA_STEP_ADD,
  VTA_STEP_MULTIPLY,
  VTA_STEP_TABLE,
  VTA_STEP_QUANTIZE,
  VTA_STEP_DEQUANTIZE,
  VTA_STEP_SOFTMAX,
  VTA_STEP_FIXED_SOFTMAX,
  VTA_STEP_LAYER_NORM,
  VTA_STEP_MEAN,
  VTA_STEP_ADD_TERM,
  VTA_STEP_MAXIMUM,
  VTA_STEP_MINIMUM,
  VTA_STEP_WRITE_ROWS,
  VTA_STEPS
};

/* Returns the bytes of a slot if it has at least `nbytes`; else NULL. */
const void *vta_readable(const vta_model *model, uint32_t slot, uint64_t nbytes);
void *vta_writable(const vta_model *model, uint32_t slot, uint64_t nbytes);

/* Returns the CRC-32 of bytes that follow those with the CRC-32 `crc`, or 0 at the start. */
uint32_t vta_crc32(uint32_t crc, const uint8_t *data, size_t nbytes);

/* Executes a host step, given its kind, its words and their number. */
int vta_host_step(const vta_model *model, uint32_t kind, const uint32_t *words, uint32_t count);

#endif
