/* rules.c - one allocation per list; a bit per vocabulary entry for the allowed ids.
 *
 * A bad word of one token is out always: its prefix is empty. */
#include "worker/sample/rules.h"

#include <errno.h>
#include <math.h>
#include <stdbool.h>
#include <string.h>

#include "proto/base/assert.h"
#include "proto/base/mem.h"
#include "proto/sampling_limits.h"

struct sample_rules {
    uint32_t vocab_size;
    uint64_t *allowed; /* NULL: all */
    uint32_t *bias_ids;
    float *bias_values;
    uint32_t bias_count;
    uint32_t *bad_ids;    /* all sequences end to end */
    uint32_t *bad_counts; /* tokens of each */
    uint32_t bad_count;
};

static uint32_t id_at(const struct sample_rules_bytes *list, size_t i)
{
    uint32_t id;
    memcpy(&id, list->data + i * sizeof(id), sizeof(id));
    return id; /* little-endian, as every machine that we run on */
}

/* A packed list of ids, each in the vocabulary. */
static int check_ids(const struct sample_rules_bytes *list, const char *name, size_t count_max,
                     uint32_t vocab_size, struct errmsg *err)
{
    size_t count = list->bytes / sizeof(uint32_t);

    if (list->bytes % sizeof(uint32_t) != 0)
        return errmsg_set(err, -EINVAL, "%s: %zu bytes are no list of token ids", name,
                          list->bytes);
    if (count > count_max)
        return errmsg_set(err, -EINVAL, "%s: %zu token ids; at most %zu fit", name, count,
                          count_max);
    for (size_t i = 0; i < count; i++) {
        if (id_at(list, i) >= vocab_size)
            return errmsg_set(err, -EINVAL, "%s: token id %u; the vocabulary has %u", name,
                              id_at(list, i), vocab_size);
    }
    return 0;
}

static int take_allowed(struct sample_rules *rules, const struct sample_rules_bytes *list,
                        struct errmsg *err)
{
    int r = check_ids(list, "allowed_token_ids", ALLOWED_IDS_MAX, rules->vocab_size, err);

    if (r < 0 || list->bytes == 0)
        return r;
    rules->allowed = mem_calloc((rules->vocab_size + 63) / 64, sizeof(*rules->allowed));
    for (size_t i = 0; i < list->bytes / sizeof(uint32_t); i++)
        rules->allowed[id_at(list, i) / 64] |= (uint64_t)1 << id_at(list, i) % 64;
    return 0;
}

static int take_bias(struct sample_rules *rules, const struct sample_rules_input *input,
                     struct errmsg *err)
{
    const struct sample_rules_bytes *ids = &input->bias_ids, *values = &input->bias_values;
    int r = check_ids(ids, "logit_bias", LOGIT_BIAS_ENTRIES_MAX, rules->vocab_size, err);

    if (r < 0)
        return r;
    if (values->bytes != ids->bytes)
        return errmsg_set(err, -EINVAL, "logit_bias: %zu bytes of ids and %zu of values",
                          ids->bytes, values->bytes);
    if (ids->bytes == 0)
        return 0;
    rules->bias_count = (uint32_t)(ids->bytes / sizeof(uint32_t));
    rules->bias_ids = mem_calloc(rules->bias_count, sizeof(*rules->bias_ids));
    rules->bias_values = mem_calloc(rules->bias_count, sizeof(*rules->bias_values));
    memcpy(rules->bias_ids, ids->data, ids->bytes);
    memcpy(rules->bias_values, values->data, values->bytes);
    for (uint32_t i = 0; i < rules->bias_count; i++) {
        if (!(fabs((double)rules->bias_values[i]) <= LOGIT_BIAS_MAX))
            return errmsg_set(err, -EINVAL, "logit_bias: %g is not from -%g to %g",
                              (double)rules->bias_values[i], LOGIT_BIAS_MAX, LOGIT_BIAS_MAX);
    }
    return 0;
}

static int take_bad_words(struct sample_rules *rules, const struct sample_rules_input *input,
                          struct errmsg *err)
{
    size_t ids = 0;

    if (input->bad_words_count > BAD_SEQUENCES_MAX)
        return errmsg_set(err, -EINVAL, "bad_words: %zu token sequences; at most %u fit",
                          input->bad_words_count, BAD_SEQUENCES_MAX);
    for (size_t i = 0; i < input->bad_words_count; i++) {
        const struct sample_rules_bytes *word = &input->bad_words[i];
        int r = check_ids(word, "bad_words", BAD_SEQUENCE_IDS_MAX, rules->vocab_size, err);
        if (r < 0)
            return r;
        if (word->bytes == 0)
            return errmsg_set(err, -EINVAL, "bad_words: sequence %zu has no tokens", i);
        ids += word->bytes / sizeof(uint32_t);
    }
    if (ids == 0)
        return 0;
    rules->bad_ids = mem_calloc(ids, sizeof(*rules->bad_ids));
    rules->bad_counts = mem_calloc(input->bad_words_count, sizeof(*rules->bad_counts));
    uint32_t *at = rules->bad_ids;
    for (size_t i = 0; i < input->bad_words_count; i++) {
        const struct sample_rules_bytes *word = &input->bad_words[i];
        memcpy(at, word->data, word->bytes);
        rules->bad_counts[i] = (uint32_t)(word->bytes / sizeof(uint32_t));
        at += rules->bad_counts[i];
    }
    rules->bad_count = (uint32_t)input->bad_words_count;
    return 0;
}

int sample_rules_new(const struct sample_rules_input *input, uint32_t vocab_size,
                     struct sample_rules **ret_rules, struct errmsg *err)
{
    if (input->allowed.bytes == 0 && input->bias_ids.bytes == 0 && input->bias_values.bytes == 0 &&
        input->bad_words_count == 0) {
        *ret_rules = NULL;
        return 0;
    }
    struct sample_rules *rules = mem_zalloc(sizeof(*rules));
    rules->vocab_size = vocab_size;
    int r = take_allowed(rules, &input->allowed, err);
    if (r == 0)
        r = take_bias(rules, input, err);
    if (r == 0)
        r = take_bad_words(rules, input, err);
    if (r < 0) {
        sample_rules_free(rules);
        return r;
    }
    *ret_rules = rules;
    return 0;
}

void sample_rules_free(struct sample_rules *rules)
{
    if (rules == NULL)
        return;
    mem_free(rules->allowed);
    mem_free(rules->bias_ids);
    mem_free(rules->bias_values);
    mem_free(rules->bad_ids);
    mem_free(rules->bad_counts);
    mem_free(rules);
}

/* Is the word's beginning, all but its last token, the end of the output? */
static bool is_begun(const uint32_t *word, uint32_t count, const uint32_t *output_ids,
                     uint32_t output_count)
{
    uint32_t prefix = count - 1;
    return prefix <= output_count &&
           (prefix == 0 ||
            memcmp(word, output_ids + output_count - prefix, prefix * sizeof(*word)) == 0);
}

void sample_rules_apply(const struct sample_rules *rules, float *logits, const uint32_t *output_ids,
                        uint32_t output_count)
{
    const uint32_t *word = rules->bad_ids;

    for (uint32_t id = 0; rules->allowed != NULL && id < rules->vocab_size; id++) {
        if (!(rules->allowed[id / 64] >> id % 64 & 1))
            logits[id] = -INFINITY;
    }
    for (uint32_t i = 0; i < rules->bad_count; i++) {
        ASSERT(rules->bad_counts[i] > 0);
        if (is_begun(word, rules->bad_counts[i], output_ids, output_count))
            logits[word[rules->bad_counts[i] - 1]] = -INFINITY;
        word += rules->bad_counts[i];
    }
    for (uint32_t i = 0; i < rules->bias_count; i++)
        logits[rules->bias_ids[i]] += rules->bias_values[i];
}
