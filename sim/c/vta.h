/* Runs a compiled network on a VTA: the interface between an application, a model and a device.
 *
 * C99 without dependencies except memcpy, memmove and memset. A model is a blob (see vta_blob.h),
 * which stays constant, an arena that the caller provides, and the memory of a device. Nothing is
 * allocated on a heap. Every function returns VTA_OK or a code that vta_text() describes.
 */
#ifndef VTA_H
#define VTA_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum vta_status {
  VTA_OK = 0,
  VTA_ERROR_BLOB,      /* the first bytes are not those of a model, or bytes are missing */
  VTA_ERROR_VERSION,   /* another version of the format */
  VTA_ERROR_ENDIAN,    /* this processor is big-endian */
  VTA_ERROR_CRC,       /* the blob is damaged */
  VTA_ERROR_CONTENT,   /* the blob is complete but inconsistent */
  VTA_ERROR_CONFIG,    /* the device has another configuration */
  VTA_ERROR_ARENA,     /* too small, or not aligned to 8 bytes */
  VTA_ERROR_MEMORY,    /* the device does not have enough memory */
  VTA_ERROR_ADDRESS,   /* the device allocated memory that instructions cannot address */
  VTA_ERROR_NOT_READY, /* not initialised, or a run failed: initialise again */
  VTA_ERROR_ARGUMENT,  /* a pointer is missing */
  VTA_ERROR_DEVICE,    /* the device cannot be reached, or refused a call */
  VTA_ERROR_FAULT,     /* the device reports an invalid access or a deadlock */
  VTA_ERROR_TIMEOUT,   /* a launch did not finish in time */
  VTA_ERROR_LOST,      /* the device was reset, or bytes changed in transit: open it again */
  VTA_ERROR_NO_ROOM,   /* the state has no room for the rows of another run: reset it */
  VTA_ERROR_COUNT
} vta_status;

/* Returns an English sentence for a status. */
const char *vta_text(int status);

/* A device that executes programs: five functions, each of which returns a vta_status. Allocated
 * memory stays until the owner of the device closes or resets it. Addresses are those that the
 * device sees; an allocation begins at a multiple of 4096, below 2**32. */
typedef struct vta_device {
  void *context;   /* passed to each function */
  uint32_t config; /* of the hardware; that of a model must be equal (VTA_CONFIG in hardware.h) */
  int (*alloc)(void *context, uint32_t nbytes, uint32_t *address);
  int (*write)(void *context, uint32_t address, const void *data, uint32_t nbytes);
  int (*read)(void *context, uint32_t address, void *data, uint32_t nbytes);
  int (*launch)(void *context, uint32_t address, uint32_t count); /* instructions of 16 bytes */
  int (*wait)(void *context, uint32_t milliseconds);
} vta_device;

#ifndef VTA_DEFAULT_TIMEOUT
#define VTA_DEFAULT_TIMEOUT 10000u /* milliseconds of a launch */
#endif

/* A model that is ready to run. The fields are private, except the timeout. */
typedef struct vta_model {
  const vta_device *device;
  const uint8_t *blob;
  uint8_t *arena;
  uint32_t *addresses; /* of the buffers on the device; in the arena */
  const void *const *inputs;
  void *const *outputs;
  uint32_t place;   /* rows that runs have written to the state on the device */
  uint32_t timeout; /* time limit of a launch in milliseconds */
  uint32_t at;      /* the next step of a run */
  int ready, stage; /* of a run: 0 none, 1 prepared, 2 its launch started */
} vta_model;

/* Checks a blob and places its programs and weights in the memory of a device.
 *
 * `blob` and `arena` must be aligned to 8 bytes and must not move. */
int vta_init(vta_model *model, const vta_device *device, const void *blob, size_t nbytes,
             void *arena, size_t arena_nbytes);

/* The size of an input or output in bytes, as stored in the blob, for the arrays of vta_run. */
uint32_t vta_input_nbytes(const vta_model *model, uint32_t number);
uint32_t vta_output_nbytes(const vta_model *model, uint32_t number);

/* Runs once. `inputs` and `outputs` have a pointer for each input and output of the network, to
 * arrays in C order, aligned to their elements. After an error, a model is no longer ready. */
int vta_run(vta_model *model, const void *const *inputs, void *const *outputs);

/* The same in parts, so that the host prepares one run while the device executes another: vta_prepare
 * does what comes before the first launch, vta_start begins that launch, vta_finish waits for it and
 * does the rest. Two models of one blob, each with its arena, take turns on a device: prepare the
 * next, finish the present one, start the next. The arrays of a run must stay until it is finished. */
int vta_prepare(vta_model *model, const void *const *inputs, void *const *outputs);
int vta_start(vta_model *model);
int vta_finish(vta_model *model);

/* Forgets the rows that runs have written to the state on the device. */
int vta_reset(vta_model *model);

#ifdef __cplusplus
}
#endif

#endif
