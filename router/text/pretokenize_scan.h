/* pretokenize_scan.h - hand-written scanners for the patterns that nearly all models use. */
#ifndef REFRAIN_ROUTER_TEXT_PRETOKENIZE_SCAN_H
#define REFRAIN_ROUTER_TEXT_PRETOKENIZE_SCAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "router/text/unicode.h"

struct scan_rules {
    uint16_t letters;        /* CP_LETTER, or with CP_MARK */
    uint32_t digits_max;     /* of one word; UINT32_MAX: any run */
    bool contraction_suffix; /* 's and so on end a word instead of being one */
    bool slash;              /* '/' may stand among the newlines after punctuation */
};

/* End of the match that starts exactly at `at` < `end`; `at` itself: none starts here. Matches
 * never reach past `end`, and `end` counts as the end of the text. */
typedef size_t (*scan_fn)(struct unicode *unicode, const char *text, size_t at, size_t end,
                          const struct scan_rules *rules);

size_t scan_gpt2(struct unicode *unicode, const char *text, size_t at, size_t end,
                 const struct scan_rules *rules);
size_t scan_llama3(struct unicode *unicode, const char *text, size_t at, size_t end,
                   const struct scan_rules *rules);
size_t scan_o200k(struct unicode *unicode, const char *text, size_t at, size_t end,
                  const struct scan_rules *rules);
size_t scan_deepseek3(struct unicode *unicode, const char *text, size_t at, size_t end,
                      const struct scan_rules *rules);
size_t scan_digits(struct unicode *unicode, const char *text, size_t at, size_t end,
                   const struct scan_rules *rules);
size_t scan_newline(struct unicode *unicode, const char *text, size_t at, size_t end,
                    const struct scan_rules *rules);

#endif
