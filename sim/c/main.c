/* Runs the model in this folder on files, and prints the outputs and the time of a run.
 *
 *   network [--repeat N] [--gain G] [--offset O] [--output PREFIX] INPUT...
 *
 * An INPUT is a file with the raw bytes of a network input (see model.h) or, for an image, a binary
 * PGM or PPM of its size; a pixel p of 0..255 then means p * gain + offset (by default p / 255).
 * --output writes the raw outputs to PREFIX0.bin and so on. On a board (VTA_ON_LINUX):
 *
 *   --design hls|rtl  --registers FILE[@OFFSET]  --memory FILE[@OFFSET]
 *   --physical ADDRESS  --nbytes N     (of that memory, as VTA sees it)
 *   --interrupt FILE                   (a UIO device that says when a launch ends; else polling)
 *   --serial PORT  --patience MS       (a ULX3S there, in place of all these)
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "hardware.h"
#include "model.h"
#ifdef VTA_ON_LINUX
#include "vta_linux.h"
#include "vta_serial.h"
#elif defined(VTA_ON_TSIM)
#include "vta_tsim.h"
#else
#include "vta_fsim.h"
#endif

#define SHOWN 10 /* number of highest scores shown per output */

static const vta_tensor inputs[] = VTA_INPUT_TABLE;
static const vta_tensor outputs[] = VTA_OUTPUT_TABLE;

typedef struct options {
  long repeat;
  double gain, offset;
  const char *output;
  const char *files[VTA_INPUTS];
  int count;
#ifdef VTA_ON_LINUX
  vta_linux board;
  vta_serial serial;
#endif
} options;

static int fail(const char *what, const char *why) {
  fprintf(stderr, "error: %s: %s\n", what, why);
  return 1;
}

/* ---------------------------------------------------------------------------- arguments */

#ifdef VTA_ON_LINUX
/* Splits FILE@OFFSET in place. */
static const char *file_at(char *text, uint64_t *offset) {
  char *const at = strrchr(text, '@');
  if (at) {
    *at = 0;
    *offset = strtoull(at + 1, NULL, 0);
  }
  return text;
}

static int board_option(options *o, const char *name, char *value) {
  vta_linux *const board = &o->board;
  if (strcmp(name, "--design") == 0) {
    board->design = strcmp(value, "rtl") == 0 ? VTA_DESIGN_RTL : VTA_DESIGN_HLS;
    return strcmp(value, "rtl") == 0 || strcmp(value, "hls") == 0;
  }
  if (strcmp(name, "--registers") == 0) {
    board->registers = file_at(value, &board->registers_offset);
  } else if (strcmp(name, "--memory") == 0) {
    board->memory = file_at(value, &board->memory_offset);
  } else if (strcmp(name, "--physical") == 0) {
    board->physical = (uint32_t)strtoul(value, NULL, 0);
  } else if (strcmp(name, "--nbytes") == 0) {
    board->nbytes = (uint32_t)strtoul(value, NULL, 0);
  } else if (strcmp(name, "--interrupt") == 0) {
    board->interrupt = value;
  } else if (strcmp(name, "--serial") == 0) {
    o->serial.path = value;
  } else if (strcmp(name, "--patience") == 0) {
    o->serial.patience = (uint32_t)strtoul(value, NULL, 10);
  } else {
    return 0;
  }
  return 1;
}
#endif

static int option(options *o, const char *name, char *value) {
  if (strcmp(name, "--repeat") == 0) {
    o->repeat = strtol(value, NULL, 10);
  } else if (strcmp(name, "--gain") == 0) {
    o->gain = strtod(value, NULL);
  } else if (strcmp(name, "--offset") == 0) {
    o->offset = strtod(value, NULL);
  } else if (strcmp(name, "--output") == 0) {
    o->output = value;
  } else {
#ifdef VTA_ON_LINUX
    return board_option(o, name, value);
#else
    return 0;
#endif
  }
  return 1;
}

static int parse(options *o, int count, char **words) {
  int i;
  memset(o, 0, sizeof *o);
  o->repeat = 1;
  o->gain = 1.0 / 255.0;
#ifdef VTA_ON_LINUX
  o->board.registers = o->board.memory = "/dev/mem";
  o->board.registers_offset = VTA_REGISTERS_AT;
#endif
  for (i = 1; i < count; ++i) {
    if (strncmp(words[i], "--", 2) == 0) {
      if (i + 1 == count || !option(o, words[i], words[i + 1]))
        return fail(words[i], "no such option, or no such value of it");
      ++i;
    } else if (o->count < VTA_INPUTS) {
      o->files[o->count++] = words[i];
    } else {
      return fail(words[i], "the network has fewer inputs");
    }
  }
  if (o->count < VTA_INPUTS) return fail(inputs[o->count].name, "give a file for this input");
  if (o->repeat < 1) return fail("--repeat", "give at least 1");
#ifdef VTA_ON_LINUX
  if (!o->board.registers_offset && !o->serial.path && strcmp(o->board.registers, "/dev/mem") == 0)
    return fail("--registers", "the configuration has no address of them; give one (or --serial)");
  if (!o->board.memory_offset && strcmp(o->board.memory, "/dev/mem") == 0)
    o->board.memory_offset = o->board.physical;
  if (!o->board.nbytes && !o->serial.path)
    return fail("--physical, --nbytes", "say where the memory for VTA lies (or give --serial)");
#endif
  return 0;
}

/* ------------------------------------------------------------------------------ inputs */

/* Reads the next number of a PNM header; returns -1 if there is none. */
static long number(FILE *file) {
  long value = 0;
  int c = getc(file);
  while (c == ' ' || c == '\n' || c == '\t' || c == '\r' || c == '#') {
    if (c == '#') {
      while (c != '\n' && c != EOF) c = getc(file);
    }
    c = getc(file);
  }
  if (c < '0' || c > '9') return -1;
  for (; c >= '0' && c <= '9' && value < 1000000; c = getc(file)) value = value * 10 + c - '0';
  return value;
}

/* Stores the value of a pixel as an element of an input. */
static void store(const vta_tensor *t, void *data, size_t at, int pixel, const options *o) {
  const double real = pixel * o->gain + o->offset;
  if (strcmp(t->dtype, "float32") == 0) {
    ((float *)data)[at] = (float)real;
  } else if (strcmp(t->dtype, "int8") == 0) {
    const double steps = floor(real / (double)t->scale + 0.5) + t->zero_point;
    ((int8_t *)data)[at] = (int8_t)(steps < -128 ? -128 : steps > 127 ? 127 : steps);
  } else {
    ((uint8_t *)data)[at] = (uint8_t)pixel;
  }
}

/* Reads a PGM or PPM as an NCHW or NHWC image; its first two bytes have been read. */
static int read_picture(FILE *file, int kind, const vta_tensor *t, void *data, const options *o) {
  const uint32_t channels = kind == '6' ? 3 : 1;
  const int first = t->rank == 4 && t->shape[1] == channels;
  const int last = t->rank == 4 && t->shape[3] == channels && !first;
  const uint32_t height = t->shape[first ? 2 : 1], width = t->shape[first ? 3 : 2];
  const long columns = number(file), rows = number(file), greatest = number(file);
  uint32_t y, x, c;
  if (!first && !last) return fail(t->name, "is no image of so many channels");
  if (rows != (long)height || columns != (long)width || greatest != 255) {
    fprintf(stderr, "error: %s: the picture has %ld x %ld pixels of 0..%ld; give %u x %u of 0..255\n",
            t->name, columns, rows, greatest, (unsigned)width, (unsigned)height);
    return 1;
  }
  for (y = 0; y < height; ++y) {
    for (x = 0; x < width; ++x) {
      for (c = 0; c < channels; ++c) {
        const int pixel = getc(file);
        const size_t at = first ? ((size_t)c * height + y) * width + x
                                : ((size_t)y * width + x) * channels + c;
        if (pixel == EOF) return fail(t->name, "the picture is truncated");
        store(t, data, at, pixel, o);
      }
    }
  }
  return 0;
}

static int read_input(const char *path, const vta_tensor *t, void *data, const options *o) {
  FILE *const file = fopen(path, "rb");
  uint8_t *const bytes = data;
  size_t got;
  int status = 0;
  if (!file) return fail(path, "cannot be opened");
  got = fread(bytes, 1, t->nbytes, file);
  if (got > 2 && bytes[0] == 'P' && (bytes[1] == '5' || bytes[1] == '6') &&
      (got < t->nbytes || getc(file) != EOF)) {
    const int kind = bytes[1];
    fseek(file, 2, SEEK_SET);
    status = read_picture(file, kind, t, data, o);
  } else if (got < t->nbytes || getc(file) != EOF) {
    fprintf(stderr, "error: %s: %s takes exactly %u bytes, or a PGM or PPM picture\n", path, t->name,
            (unsigned)t->nbytes);
    status = 1;
  }
  fclose(file);
  return status;
}

/* ----------------------------------------------------------------------------- outputs */

static double value_of(const vta_tensor *t, const void *data, size_t at) {
  if (strcmp(t->dtype, "float32") == 0) return ((const float *)data)[at];
  if (strcmp(t->dtype, "int32") == 0) return ((const int32_t *)data)[at];
  if (strcmp(t->dtype, "int64") == 0) return (double)((const int64_t *)data)[at];
  if (strcmp(t->dtype, "int8") == 0)
    return (double)t->scale * (((const int8_t *)data)[at] - t->zero_point);
  return ((const uint8_t *)data)[at];
}

static size_t elements(const vta_tensor *t) {
  size_t count = 1;
  uint32_t i;
  for (i = 0; i < t->rank; ++i) count *= t->shape[i];
  return count;
}

/* Prints the largest values of an output with their indices. */
static void print_scores(const vta_tensor *t, const void *data) {
  const size_t count = elements(t);
  size_t best[SHOWN], found = 0, i, place;
  for (i = 0; i < count; ++i) { /* insertion sort */
    for (place = found; place > 0; --place) {
      if (value_of(t, data, best[place - 1]) >= value_of(t, data, i)) break;
      if (place < SHOWN) best[place] = best[place - 1];
    }
    if (place < SHOWN) best[place] = i;
    if (found < SHOWN) ++found;
  }
  printf("%s:", t->name);
  for (i = 0; i < found; ++i) printf(" [%lu] %g", (unsigned long)best[i], value_of(t, data, best[i]));
  printf("%s\n", found < count ? " ..." : "");
}

static int write_output(const char *prefix, int place, const void *data, size_t nbytes) {
  char path[1024];
  FILE *file;
  size_t put;
  if (strlen(prefix) > sizeof path - 16) return fail(prefix, "the name is too long");
  sprintf(path, "%s%d.bin", prefix, place);
  file = fopen(path, "wb");
  if (!file) return fail(path, "cannot be written");
  put = fwrite(data, 1, nbytes, file);
  if (fclose(file) != 0 || put != nbytes) return fail(path, "cannot be written");
  return 0;
}

/* --------------------------------------------------------------------------------- main */

static int open_device(options *o, vta_device *device) {
#ifdef VTA_ON_LINUX
  return o->serial.path ? vta_serial_open(&o->serial, device) : vta_linux_open(&o->board, device);
#else
  (void)o;
#ifdef VTA_ON_TSIM
  return vta_tsim_open(device);
#else
  return vta_fsim_open(device);
#endif
#endif
}

static void close_device(options *o, vta_device *device) {
#ifdef VTA_ON_LINUX
  (void)device;
  if (o->serial.path) {
    vta_serial_close(&o->serial);
  } else {
    vta_linux_close(&o->board);
  }
#elif defined(VTA_ON_TSIM)
  (void)o;
  printf("%.0f cycles of the RTL\n", (double)vta_tsim_cycles(device));
  vta_tsim_close(device);
#else
  (void)o;
  if (*vta_fsim_message(device)) fprintf(stderr, "%s\n", vta_fsim_message(device));
  vta_fsim_close(device);
#endif
}

static int run(options *o, const void *const *from, void *const *to) {
  vta_device device;
  clock_t begin, loaded, end;
  long i;
  int status = open_device(o, &device);
  if (status) return fail("the device", vta_text(status));
  begin = clock();
  status = vta_model_init(&device);
  loaded = clock();
  for (i = 0; !status && i < o->repeat; ++i) status = vta_model_run(&device, from, to);
  end = clock();
  close_device(o, &device);
  if (status) return fail(VTA_MODEL_NAME, vta_text(status));
  printf("%s on %s: loaded in %.2f ms, %.2f ms a run (processor time)\n", VTA_MODEL_NAME,
         VTA_MODEL_HARDWARE, 1e3 * (double)(loaded - begin) / CLOCKS_PER_SEC,
         1e3 * (double)(end - loaded) / CLOCKS_PER_SEC / (double)o->repeat);
  return 0;
}

int main(int count, char **words) {
  options o;
  void *from[VTA_INPUTS], *to[VTA_OUTPUTS];
  int i, status = parse(&o, count, words);
  for (i = 0; i < VTA_INPUTS; ++i) from[i] = malloc(inputs[i].nbytes);
  for (i = 0; i < VTA_OUTPUTS; ++i) to[i] = malloc(outputs[i].nbytes);
  for (i = 0; i < VTA_INPUTS && !status; ++i) {
    status = from[i] ? read_input(o.files[i], &inputs[i], from[i], &o) : fail("memory", "none left");
  }
  for (i = 0; i < VTA_OUTPUTS && !status; ++i) {
    if (!to[i]) status = fail("memory", "none left");
  }
  if (!status) status = run(&o, (const void *const *)from, to);
  for (i = 0; i < VTA_OUTPUTS && !status; ++i) {
    print_scores(&outputs[i], to[i]);
    if (o.output) status = write_output(o.output, i, to[i], outputs[i].nbytes);
  }
  for (i = 0; i < VTA_INPUTS; ++i) free(from[i]);
  for (i = 0; i < VTA_OUTPUTS; ++i) free(to[i]);
  return status;
}
