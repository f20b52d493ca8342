/* Runs the model in this folder on files, and prints the outputs and the time of a run.
 *
 *   network [--repeat N] [--gain G] [--offset O] [--output PREFIX] INPUT...
 *
 * An INPUT is a file with the raw bytes of a network input (see model.h) or, for an image, a binary
 * PGM or PPM of its size; a pixel p of 0..255 then means p * gain + offset (by default p / 255).
 * --output writes the raw outputs to PREFIX0.bin and so on. Options of a board: see program.h.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "model.h"
#include "program.h"

#define SHOWN 10 /* number of highest scores shown per output */

static const vta_tensor inputs[] = VTA_INPUT_TABLE;
static const vta_tensor outputs[] = VTA_OUTPUT_TABLE;

typedef struct options {
  long repeat;
  double gain, offset;
  const char *output;
  const char *files[VTA_INPUTS];
  int count;
} options;

/* ---------------------------------------------------------------------------- arguments */

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
    return program_option(name, value);
  }
  return 1;
}

static int parse(options *o, int count, char **words) {
  int i;
  memset(o, 0, sizeof *o);
  o->repeat = 1;
  o->gain = 1.0 / 255.0;
  for (i = 1; i < count; ++i) {
    if (strncmp(words[i], "--", 2) == 0) {
      if (i + 1 == count || !option(o, words[i], words[i + 1]))
        return program_fail(words[i], "no such option, or no such value of it");
      ++i;
    } else if (o->count < VTA_INPUTS) {
      o->files[o->count++] = words[i];
    } else {
      return program_fail(words[i], "the network has fewer inputs");
    }
  }
  if (o->count < VTA_INPUTS) return program_fail(inputs[o->count].name, "give a file for this input");
  if (o->repeat < 1) return program_fail("--repeat", "give at least 1");
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
  if (!first && !last) return program_fail(t->name, "is no image of so many channels");
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
        if (pixel == EOF) return program_fail(t->name, "the picture is truncated");
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
  if (!file) return program_fail(path, "cannot be opened");
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
  if (strlen(prefix) > sizeof path - 16) return program_fail(prefix, "the name is too long");
  sprintf(path, "%s%d.bin", prefix, place);
  file = fopen(path, "wb");
  if (!file) return program_fail(path, "cannot be written");
  put = fwrite(data, 1, nbytes, file);
  if (fclose(file) != 0 || put != nbytes) return program_fail(path, "cannot be written");
  return 0;
}

/* --------------------------------------------------------------------------------- main */

static int run(const options *o, const void *const *from, void *const *to) {
  vta_device device;
  clock_t begin, loaded, end;
  long i;
  int status = program_open(&device);
  if (status) return status;
  begin = clock();
  status = vta_model_init(&device);
  loaded = clock();
  for (i = 0; !status && i < o->repeat; ++i) status = vta_model_run(&device, from, to);
  end = clock();
  program_close(&device);
  if (status) return program_fail(VTA_MODEL_NAME, vta_text(status));
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
    status = from[i] ? read_input(o.files[i], &inputs[i], from[i], &o) : program_fail("memory", "none left");
  }
  for (i = 0; i < VTA_OUTPUTS && !status; ++i) {
    if (!to[i]) status = program_fail("memory", "none left");
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
