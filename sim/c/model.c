/* The model of this folder, with its blob and its arena: the one call of model.h. */
#include "model.h"

extern const uint8_t vta_blob[], vta_blob_end[]; /* in model_blob.S */

static uint64_t arena[(VTA_ARENA_NBYTES + 7) / 8];
static vta_model model;

int vta_model_init(const vta_device *device) {
  return vta_init(&model, device, vta_blob, (size_t)(vta_blob_end - vta_blob), arena, sizeof arena);
}

int vta_model_run(const vta_device *device, const void *const *inputs, void *const *outputs) {
  if (!device) return VTA_ERROR_ARGUMENT;
  if (model.device != device) {
    const int status = vta_model_init(device);
    if (status) return status;
  }
  return vta_run(&model, inputs, outputs);
}
