/* config_keys.h - numbers of a model by name, from config.json or from a GGUF's keys. */
#ifndef REFRAIN_WORKER_LOAD_CONFIG_KEYS_H
#define REFRAIN_WORKER_LOAD_CONFIG_KEYS_H

#include <stdbool.h>

#include "worker/load/model_source.h"

/* Remembers the first failure: after it every read returns the default, so that callers read many
 * numbers and look at `result` once. */
struct config_keys {
    const struct gguf *gguf; /* NULL: HF */
    const char *prefix;      /* GGUF: "llama" */
    const json_t *object;    /* HF: config.json, or a part of it */
    int result;              /* 0, or the first error's code */
    struct errmsg *err;
};

/* What a number is called ("a|b": either) in the two formats; NULL: it has none there. */
struct config_name {
    const char *hf, *gguf;
};

/* The number, or `absent` where no file has it (JSON's null: absent). Out of [min, max], or of
 * another type: keys->result. */
double config_number(struct config_keys *keys, struct config_name name, double min, double max,
                     double absent);
/* The same; whole numbers only; `required` where absent is an error. */
uint32_t config_u32(struct config_keys *keys, struct config_name name, uint32_t min, uint32_t max,
                    uint32_t absent);
uint32_t config_u32_required(struct config_keys *keys, struct config_name name, uint32_t min,
                             uint32_t max);
bool config_bool(struct config_keys *keys, struct config_name name, bool absent);
/* Remember `code` and text, unless there was an error before. */
void config_fail(struct config_keys *keys, int code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

#endif
