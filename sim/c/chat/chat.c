/* Writes a text with the language model in this folder, token by token as they come.
 *
 *   chat [--tokens N] [--temperature T] [--top-p P] [--seed S] [--numbers 1] [PROMPT]
 *
 * The same prompt, numbers and seed give the tokens of vtaops.LanguageModel.write, on any processor
 * with IEEE arithmetic. --numbers 1 prints tokens as numbers. Options of a board: see program.h.
 */
#include "chat.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model.h"
#include "program.h"

#define NONE 0xffffffffu
#define DRAWN 0x1p32 /* the weight of the best token */

extern const uint8_t chat_blob[], chat_blob_end[]; /* in chat_blob.S */

typedef struct options {
  const char *prompt;
  long tokens, numbers;
  double temperature, top_p;
  unsigned long long seed;
} options;

static uint32_t word_at(uint32_t table, uint32_t number) {
  uint32_t word;
  memcpy(&word, chat_blob + table + (size_t)number * 4, sizeof word);
  return word;
}

/* -------------------------------------------------------------------------- tokens */

static const uint8_t *piece(uint32_t token, size_t *nbytes) {
  const uint32_t begin = word_at(CHAT_PIECES_AT, token);
  *nbytes = word_at(CHAT_PIECES_AT, token + 1) - begin;
  return chat_blob + CHAT_TEXT_AT + begin;
}

/* Returns the token of a piece; NONE if it is none. */
static uint32_t token_of(const uint8_t *text, size_t nbytes) {
  uint32_t low = 0, high = CHAT_DIFFERENT;
  while (low < high) {
    const uint32_t middle = low + (high - low) / 2, token = word_at(CHAT_SORTED_AT, middle);
    size_t own;
    const uint8_t *const other = piece(token, &own);
    int order = memcmp(other, text, own < nbytes ? own : nbytes);
    if (order == 0) order = own < nbytes ? -1 : own > nbytes;
    if (order == 0) return token;
    if (order < 0) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return NONE;
}

/* Cuts a text into letters, and joins neighbours while that makes a piece, the best one first. Sets
 * where parts begin, of which there are at most `nbytes`; returns their number. */
static size_t parts_of(const uint8_t *text, size_t nbytes, size_t *begins) {
  size_t count = 0, i;
  for (i = 0; i < nbytes; ++i) {
    if ((text[i] & 0xC0) != 0x80) begins[count++] = i; /* else it continues a letter of UTF-8 */
  }
  begins[count] = nbytes;
  for (;;) {
    size_t best = 0;
    uint32_t least = NONE;
    for (i = 0; i + 2 <= count; ++i) {
      const uint32_t token = token_of(text + begins[i], begins[i + 2] - begins[i]);
      const uint32_t rank = token == NONE ? NONE : word_at(CHAT_RANKS_AT, token);
      if (rank < least) {
        least = rank;
        best = i;
      }
    }
    if (least == NONE) return count;
    memmove(begins + best + 1, begins + best + 2, (count - best - 1) * sizeof *begins);
    --count;
  }
}

/* Sets the tokens of a text, at most `most`; returns how many they are, or 0 without memory. */
static size_t encode(const char *prompt, uint32_t *tokens, size_t most) {
  const size_t nbytes = *prompt ? strlen(prompt) + 1 : 0;
  uint8_t *const text = malloc(nbytes + 1);
  size_t *const begins = malloc((nbytes + 1) * sizeof *begins);
  size_t count = 0, parts, i, k;
  if (text && begins) {
    tokens[count++] = CHAT_START;
    text[0] = ' ';
    if (nbytes) memcpy(text + 1, prompt, nbytes - 1);
    parts = parts_of(text, nbytes, begins);
    for (i = 0; i < parts; ++i) {
      const uint32_t token = token_of(text + begins[i], begins[i + 1] - begins[i]);
      if (token != NONE) {
        if (count++ < most) tokens[count - 1] = token;
        continue;
      }
      for (k = begins[i]; k < begins[i + 1]; ++k) {
        if (count++ < most) tokens[count - 1] = text[k] + CHAT_BYTES;
      }
    }
  }
  free(text);
  free(begins);
  return count;
}

static void print(uint32_t token, const options *o) {
  static int first = 1; /* of a text: the space before it is none */
  size_t nbytes;
  const uint8_t *text = piece(token, &nbytes);
  const uint8_t byte = (uint8_t)(token - CHAT_BYTES);
  if (o->numbers) {
    printf("%lu\n", (unsigned long)token);
    return;
  }
  if (token == CHAT_START) {
    first = 1;
    return;
  }
  if (token >= CHAT_BYTES && token < CHAT_BYTES + 256) {
    text = &byte;
    nbytes = 1;
  }
  if (first && nbytes && *text == ' ') {
    ++text;
    --nbytes;
  }
  first = 0;
  fwrite(text, 1, nbytes, stdout);
  fflush(stdout);
}

/* ------------------------------------------------------------------------- sampling */

static uint64_t weights[256]; /* of a token, by its distance to the best one; sums are below 2**53 */
static uint64_t random_state;

/* Sets the weights: exp(-distance * ratio), by arithmetic that is alike everywhere. */
static void set_weights(double ratio) {
  int distance, i;
  for (distance = 0; distance < 256; ++distance) {
    const double x = distance * ratio < 40.0 ? distance * ratio : 40.0;
    const double y = x / 1024.0;
    double found = 1.0 - y * (1.0 - y / 2.0 * (1.0 - y / 3.0 * (1.0 - y / 4.0)));
    for (i = 0; i < 10; ++i) found *= found;
    weights[distance] = (uint64_t)(found * DRAWN + 0.5);
  }
}

/* Returns the next random number of 0..1, of which 1 is none: SplitMix64. */
static double next_random(void) {
  uint64_t z = random_state += 0x9E3779B97F4A7C15u;
  z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
  z = (z ^ z >> 27) * 0x94D049BB133111EBu;
  return (double)((z ^ z >> 31) >> 11) * 0x1p-53;
}

/* Returns the token with a score before which `skipped` others have the same. */
static uint32_t find(const int8_t *scores, int score, uint32_t skipped) {
  uint32_t token = 0;
  while (scores[token] != score || skipped--) ++token;
  return token;
}

/* Returns a token: the best ones come first, and among equals those with the lower number. */
static uint32_t draw(const int8_t *scores, const options *o) {
  uint32_t counts[256] = {0}, kept[256] = {0}, token;
  uint64_t total = 0, sum = 0, place;
  int best = -128, score;
  for (token = 0; token < CHAT_VOCABULARY; ++token) {
    ++counts[scores[token] + 128];
    if (scores[token] > best) best = scores[token];
  }
  if (o->temperature == 0) return find(scores, best, 0);
  for (score = best; score >= -128; --score) total += counts[score + 128] * weights[best - score];
  for (score = best; score >= -128; --score) {
    uint32_t *const own = kept + score + 128;
    while (*own < counts[score + 128] && ((double)sum < o->top_p * (double)total || !sum)) {
      sum += weights[best - score];
      ++*own;
    }
  }
  place = (uint64_t)(next_random() * (double)sum);
  for (score = best;; --score) {
    const uint64_t weight = weights[best - score], all = kept[score + 128] * weight;
    if (place < all) return find(scores, score, (uint32_t)(place / weight));
    place -= all;
  }
}

/* ----------------------------------------------------------------------------- main */

/* Sets a number of an option; returns 0 if its text is none, or is out of range. */
static int set_number(double *to, const char *text, double low, double high) {
  char *end;
  *to = strtod(text, &end);
  return end != text && !*end && *to >= low && *to <= high;
}

static int option(options *o, const char *name, char *value) {
  double number = 0;
  char *end;
  if (strcmp(name, "--temperature") == 0) return set_number(&o->temperature, value, 0, 100);
  if (strcmp(name, "--top-p") == 0) return set_number(&o->top_p, value, 0, 1);
  if (strcmp(name, "--seed") == 0) {
    o->seed = strtoull(value, &end, 10);
    return *value >= '0' && *value <= '9' && !*end;
  }
  if (strcmp(name, "--tokens") == 0) {
    const int known = set_number(&number, value, 1, CHAT_PLACES);
    o->tokens = (long)number;
    return known;
  }
  if (strcmp(name, "--numbers") == 0) {
    const int known = set_number(&number, value, 0, 1);
    o->numbers = (long)number;
    return known;
  }
  return program_option(name, value);
}

static int parse(options *o, int count, char **words) {
  int i;
  for (i = 1; i < count; ++i) {
    if (strncmp(words[i], "--", 2) == 0) {
      if (i + 1 == count || !option(o, words[i], words[i + 1]))
        return program_fail(words[i], "no such option, or no such value of it");
      ++i;
    } else if (!*o->prompt) {
      o->prompt = words[i];
    } else {
      return program_fail(words[i], "there is a prompt; put quotes around all of it");
    }
  }
  return 0;
}

static int8_t mask[CHAT_MASK_ROWS * CHAT_MASK_COLUMNS];
static int8_t scores[CHAT_VOCABULARY];
static uint32_t text[CHAT_PLACES];

/* Lets tokens see a place, or hides it. */
static void set_mask(uint32_t place, int8_t value) {
  uint32_t row;
  for (row = 0; row < CHAT_MASK_ROWS; ++row) mask[row * CHAT_MASK_COLUMNS + place] = value;
}

/* Computes the scores of what may follow a place of the text. */
static int compute(const vta_device *device, uint32_t place) {
  const void *const inputs[] = {
      chat_blob + CHAT_EMBEDDING_AT + (size_t)text[place] * CHAT_WIDTH,
      chat_blob + CHAT_COS_AT + (size_t)place * CHAT_TURN,
      chat_blob + CHAT_SIN_AT + (size_t)place * CHAT_TURN,
      mask,
  };
  void *const outputs[] = {scores};
  const int status = vta_model_run(device, inputs, outputs);
  set_mask(place, 0);
  return status;
}

/* Writes a text whose first `count` tokens are there; returns a status. */
static int write_text(const vta_device *device, const options *o, size_t count) {
  uint32_t place;
  int status = VTA_OK;
  for (place = 0; place + 1 < CHAT_MASK_COLUMNS; ++place) set_mask(place, CHAT_HIDDEN);
  for (place = 0; place < count; ++place) print(text[place], o);
  for (place = 1; !status && place < (uint32_t)o->tokens; ++place) {
    status = compute(device, place - 1);
    if (status || place < count) continue;
    text[place] = draw(scores, o);
    if (text[place] == CHAT_START) break; /* another text would begin */
    print(text[place], o);
  }
  return status;
}

static int chat(const options *o) {
  const size_t count = encode(o->prompt, text, (size_t)o->tokens);
  vta_device device;
  int status;
  if (!count) return program_fail("the prompt", "no memory is left");
  if (count > (size_t)o->tokens)
    return program_fail("the prompt", "it has more tokens than the text may have");
  if (program_open(&device)) return 1;
  status = vta_model_init(&device);
  if (!status) status = write_text(&device, o, count);
  putchar('\n');
  program_close(&device);
  return status ? program_fail(VTA_MODEL_NAME, vta_text(status)) : 0;
}

int main(int count, char **words) {
  options o = {"", CHAT_PLACES, 0, 0.8, 0.9, 0};
  int status = parse(&o, count, words);
  if (status) return status;
  if (chat_blob_end - chat_blob != CHAT_NBYTES)
    return program_fail("chat.bin", "it is of another export than chat.h");
  random_state = o.seed;
  if (o.temperature > 0) set_weights(CHAT_STEP / o.temperature);
  return chat(&o);
}
