/* Runs one kernel of TVM without TVM: reads its arguments from a file, writes the last one back.
 *
 *   driver ARGUMENTS RESULT
 *
 * ARGUMENTS holds int32 words, native order: their number; then for each argument its DLPack type
 * code, bits, number of axes, extents, and behind them the elements. The arrays lie one element
 * behind a cache line, since kernels must not rely on more. Parallel loops run one task after the
 * other. */

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <tvm/ffi/c_api.h>

enum { MOST_ARGUMENTS = 16, MOST_AXES = 8, LINE = 64, TASKS = 2 };

typedef struct {
  void* sync_handle;
  int32_t num_task;
} Group;
typedef int (*Task)(int index, Group* group, void* data);

static void* allocate(int device_type, int device, uint64_t size, int code, int bits) {
  (void)device_type, (void)device, (void)code, (void)bits;
  return aligned_alloc(LINE, (size + LINE - 1) / LINE * LINE);
}

static int release(int device_type, int device, void* memory) {
  (void)device_type, (void)device;
  free(memory);
  return 0;
}

static int launch(Task task, void* data, int count) {
  Group group = {NULL, count > 0 ? count : TASKS};
  for (int index = 0; index < group.num_task; ++index) {
    int status = task(index, &group, data);
    if (status != 0) return status;
  }
  return 0;
}

/* The kernel calls its runtime through these pointers, which a loader would fill in. */
void* (*__TVMBackendAllocWorkspace)(int, int, uint64_t, int, int) = allocate;
int (*__TVMBackendFreeWorkspace)(int, int, void*) = release;
int (*__TVMBackendParallelLaunch)(Task, void*, int) = launch;

void TVMFFIErrorSetRaisedFromCStrParts(const char* kind, const char** parts, int32_t count) {
  fprintf(stderr, "%s: ", kind);
  for (int32_t i = 0; i < count; ++i)
    if (parts[i]) fputs(parts[i], stderr);
  fputc('\n', stderr);
}

int __tvm_ffi_main(void* handle, const TVMFFIAny* arguments, int32_t count, TVMFFIAny* result);

static int32_t word(FILE* file) {
  int32_t value;
  if (fread(&value, sizeof value, 1, file) != 1) exit(2);
  return value;
}

int main(int argc, char** argv) {
  static DLTensor tensors[MOST_ARGUMENTS];
  static int64_t shapes[MOST_ARGUMENTS][MOST_AXES];
  static TVMFFIAny arguments[MOST_ARGUMENTS];
  FILE* file = argc == 3 ? fopen(argv[1], "rb") : NULL;
  if (!file) return 2;
  int32_t count = word(file);
  size_t size = 0;
  if (count > MOST_ARGUMENTS) return 2;
  for (int32_t i = 0; i < count; ++i) {
    DLTensor* tensor = &tensors[i];
    tensor->device.device_type = kDLCPU;
    tensor->dtype.code = (uint8_t)word(file);
    tensor->dtype.bits = (uint8_t)word(file);
    tensor->dtype.lanes = 1;
    tensor->ndim = word(file);
    tensor->shape = shapes[i];
    if (tensor->ndim > MOST_AXES) return 2;
    size = tensor->dtype.bits / 8;
    size_t element = size;
    for (int32_t axis = 0; axis < tensor->ndim; ++axis) size *= shapes[i][axis] = word(file);
    tensor->data = (char*)aligned_alloc(LINE, (size + 2 * LINE - 1) / LINE * LINE) + element;
    if (fread(tensor->data, 1, size, file) != size) return 2;
    arguments[i].type_index = kTVMFFIDLTensorPtr;
    arguments[i].v_ptr = tensor;
  }
  fclose(file);
  TVMFFIAny result;
  memset(&result, 0, sizeof result);
  if (__tvm_ffi_main(NULL, arguments, count, &result) != 0) return 1;
  file = fopen(argv[2], "wb");
  if (!file || fwrite(tensors[count - 1].data, 1, size, file) != size) return 2;
  return fclose(file);
}
