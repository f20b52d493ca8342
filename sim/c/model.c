/* The model in this folder, with its blob and its arena, for the functions of model.h. */
#include "model.h"

extern const uint8_t vta_blob[], vta_blob_end[]; /* in model_blob.S */

static uint64_t arena[(VTA_ARENA_NBYTES + 7) / 8];
static vta_model model;

/* Whether the blob has the inputs and outputs of model.h: they may be from different exports. */
static int fits(void) {
  static const vta_tensor inputs[] = VTA_INPUT_TABLE, outputs[] = VTA_OUTPUT_TABLE;
  uint32_t i;
  for (i = 0; i < VTA_INPUTS; ++i) {
    if (vta_input_nbytes(&model, i) > inputs[i].nbytes) return 0;
  }
  for (i = 0; i < VTA_OUTPUTS; ++i) {
    if (vta_output_nbytes(&model, i) > outputs[i].nbytes) return 0;
  }
  return 1;
}

int vta_model_init(const vta_device *device) {
  const int status = vta_init(&model, device, vta_blob, (size_t)(vta_blob_end - vta_blob), arena,
                              sizeof arena);
  if (status) return status;
  model.ready = fits();
  return model.ready ? VTA_OK : VTA_ERROR_CONTENT;
}

int vta_model_run(const vta_device *device, const void *const *inputs, void *const *outputs) {
  if (!device) return VTA_ERROR_ARGUMENT;
  if (model.device != device) {
    const int status = vta_model_init(device);
    if (status) return status;
  }
  return vta_run(&model, inputs, outputs);
}

int vta_model_reset(void) {
  return vta_reset(&model);
}
