/* bench_grammar.c - what a grammar costs: to compile, and per token.
 *
 *   bench_grammar [MODEL.gguf]     prints CSV, times in microseconds:
 *   grammar,tokens,compile,cold_p50,cold_p99,cold_max,cold_sum,other_p50,other_p99,
 *   warm_p50,warm_p99,take_p99
 *
 * A text is written token by token (the longest allowed token that fits, as a model would), and the
 * mask of every token is timed: "cold" the first text with a new machine, "other" another text of
 * the same grammar after it, "warm" the first text again, WARM_ROUNDS times. Checked first: each
 * token of the text is allowed by its mask. One thread, its CPU time. */
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "proto/files/card_gguf.h"
#include "proto/grammar/machine.h"

#ifndef SHARED_DIR
#define SHARED_DIR "../shared"
#endif
#include "tests/unit/router/text/cards.h"

#define WARM_ROUNDS 20u
#define TOKENS_MAX 4096u
#define MACHINE_BYTES ((size_t)64 << 20)

struct sample {
    const char *name;
    enum grammar_kind kind;
    const char *text;
    const char *first, *other;
};

static const char order_schema[] =
    "{\"$defs\":{\"address\":{\"type\":\"object\",\"properties\":{\"street\":{\"type\":\"string\","
    "\"maxLength\":80},\"zip\":{\"type\":\"string\",\"pattern\":\"^[0-9]{5}$\"},\"country\":{"
    "\"enum\":[\"DE\",\"FR\",\"US\",\"GB\"]}},\"required\":[\"street\",\"zip\",\"country\"],"
    "\"additionalProperties\":false}},\"type\":\"object\",\"properties\":{\"id\":{\"type\":"
    "\"string\",\"format\":\"uuid\"},\"created\":{\"type\":\"string\",\"format\":\"date-time\"},"
    "\"customer\":{\"type\":\"object\",\"properties\":{\"name\":{\"type\":\"string\"},\"email\":{"
    "\"type\":\"string\",\"format\":\"email\"},\"billing\":{\"$ref\":\"#/$defs/address\"},"
    "\"shipping\":{\"anyOf\":[{\"$ref\":\"#/$defs/address\"},{\"type\":\"null\"}]}},\"required\":["
    "\"name\",\"billing\"]},\"items\":{\"type\":\"array\",\"minItems\":1,\"maxItems\":50,\"items\":"
    "{\"type\":\"object\",\"properties\":{\"sku\":{\"type\":\"string\"},\"count\":{\"type\":"
    "\"integer\",\"minimum\":1,\"maximum\":999},\"price\":{\"type\":\"number\",\"minimum\":0},"
    "\"tags\":{\"type\":\"array\",\"items\":{\"type\":\"string\"}}},\"required\":[\"sku\",\"count\""
    ",\"price\"]}},\"paid\":{\"type\":\"boolean\"},\"note\":{\"type\":[\"string\",\"null\"]}},"
    "\"required\":[\"id\",\"customer\",\"items\",\"paid\"]}";
static const char order_first[] =
    "{\"id\": \"123e4567-e89b-12d3-a456-426614174000\", \"created\": \"2024-02-29T12:30:00Z\", "
    "\"customer\": {\"name\": \"Ada Lovelace\", \"email\": \"ada@example.org\", \"billing\": "
    "{\"street\": \"12 St. James's Square, London\", \"zip\": \"12345\", \"country\": \"GB\"}, "
    "\"shipping\": null}, \"items\": [{\"sku\": \"engine-1\", \"count\": 2, \"price\": 19.99, "
    "\"tags\": [\"brass\", \"analytical\"]}, {\"sku\": \"cards\", \"count\": 120, \"price\": 0.5}],"
    " \"paid\": true, \"note\": \"Please deliver before the end of the month, thank you.\"}";
static const char order_other[] =
    "{\"id\":\"aaaaaaaa-0000-1111-2222-bbbbbbbbbbbb\",\"customer\":{\"name\":\"G. Hopper\","
    "\"billing\":{\"street\":\"1 Navy Yard\",\"zip\":\"20001\",\"country\":\"US\"},\"shipping\":"
    "{\"street\":\"2 Harbour Road\",\"zip\":\"99999\",\"country\":\"FR\"}},\"items\":[{\"sku\":"
    "\"nano\",\"count\":999,\"price\":1,\"tags\":[]}],\"paid\":false,\"note\":null}";

static const char json_first[] =
    "{\"title\": \"A report\", \"sections\": [{\"heading\": \"Introduction\", \"body\": \"This is "
    "the first paragraph of a longer text about nothing in particular.\", \"refs\": [1, 2, 3]}, "
    "{\"heading\": \"Results\", \"body\": \"We found that it works.\", \"nested\": {\"deep\": "
    "{\"deeper\": [true, false, null, -1.5e3]}}}]}";
static const char json_other[] =
    "{\n  \"name\": \"Bob\",\n  \"age\": 41,\n  \"friends\": [\n    {\n      \"name\": \"Eve\"\n   "
    " }\n  ]\n}";

static const char arithmetic[] = "root ::= expr \"=\" ws num\n"
                                 "expr ::= term ([-+*/] ws term)*\n"
                                 "term ::= num | \"(\" ws expr \")\" ws\n"
                                 "num ::= [0-9]+ (\".\" [0-9]+)? ws\n"
                                 "ws ::= [ \\t\\n]{0,3}\n";

static double now_us(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (double)now.tv_sec * 1e6 + (double)now.tv_nsec * 1e-3;
}

static bool is_allowed(const struct grammar_mask *mask, uint32_t id)
{
    return (mask->bits[id / 64] >> id % 64 & 1) != 0;
}

/* The longest allowed token that the text goes on with. */
static uint32_t next_token(const struct grammar_vocab *vocab, const struct grammar_mask *mask,
                           const char *text, size_t *ret_bytes)
{
    uint32_t best = TOKEN_ID_NONE;
    *ret_bytes = 0;
    for (uint32_t id = 0; id < vocab->count; id++) {
        size_t bytes;
        const char *token = grammar_vocab_text(vocab, id, &bytes);
        if (bytes > *ret_bytes && is_allowed(mask, id) && strncmp(text, token, bytes) == 0) {
            best = id;
            *ret_bytes = bytes;
        }
    }
    if (best == TOKEN_ID_NONE) {
        (void)fprintf(stderr, "no token is allowed before: %s\n", text);
        exit(1);
    }
    return best;
}

struct times {
    double mask[TOKENS_MAX * WARM_ROUNDS], take[TOKENS_MAX * WARM_ROUNDS];
    size_t count;
};

static void write_text(struct grammar_machine *machine, struct grammar *grammar, const char *text,
                       struct times *times)
{
    const struct grammar_vocab *vocab = grammar_machine_vocab(machine);
    struct grammar_matcher *matcher = NULL;
    struct grammar_mask mask;
    ASSERT(grammar_matcher_new(machine, grammar, &matcher, NULL) == 0);
    for (bool end = false; !end; times->count++) {
        double start = now_us();
        ASSERT(grammar_matcher_mask(matcher, &mask, NULL) == 0);
        times->mask[times->count] = now_us() - start;
        times->take[times->count] = 0;
        end = *text == '\0';
        if (end)
            continue;
        size_t bytes;
        uint32_t id = next_token(vocab, &mask, text, &bytes);
        start = now_us();
        ASSERT(grammar_matcher_take_token(matcher, id) == 0);
        times->take[times->count] = now_us() - start;
        text += bytes;
    }
    ASSERT(mask.complete);
    grammar_matcher_free(matcher);
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double part(double *values, size_t count, double share)
{
    qsort(values, count, sizeof(*values), by_value);
    return values[(size_t)((double)(count - 1) * share)];
}

static double sum(const double *values, size_t count)
{
    double total = 0;
    for (size_t i = 0; i < count; i++)
        total += values[i];
    return total;
}

static void run(const struct grammar_vocab *vocab, const struct sample *sample)
{
    const struct grammar_spec spec = {sample->kind, sample->text, strlen(sample->text)};
    struct times *cold = mem_zalloc(sizeof(*cold)), *other = mem_zalloc(sizeof(*other));
    struct times *warm = mem_zalloc(sizeof(*warm));
    struct grammar_machine *machine = NULL;
    struct grammar *grammar = NULL;
    struct errmsg err;

    double start = now_us();
    if (grammar_compile(&spec, &grammar, &err) < 0) {
        (void)fprintf(stderr, "%s: %s\n", sample->name, err.text);
        exit(1);
    }
    double compile = now_us() - start;
    ASSERT(grammar_machine_new(vocab, MACHINE_BYTES, &machine, NULL) == 0);
    write_text(machine, grammar, sample->first, cold);
    write_text(machine, grammar, sample->other, other);
    for (unsigned i = 0; i < WARM_ROUNDS; i++)
        write_text(machine, grammar, sample->first, warm);
    (void)printf("%s,%zu,%.0f,%.1f,%.1f,%.1f,%.0f,%.2f,%.1f,%.2f,%.2f,%.2f\n", sample->name,
                 cold->count, compile, part(cold->mask, cold->count, 0.5),
                 part(cold->mask, cold->count, 0.99), part(cold->mask, cold->count, 1),
                 sum(cold->mask, cold->count), part(other->mask, other->count, 0.5),
                 part(other->mask, other->count, 0.99), part(warm->mask, warm->count, 0.5),
                 part(warm->mask, warm->count, 0.99), part(warm->take, warm->count, 0.99));
    grammar_machine_free(machine);
    grammar_unref(grammar);
    mem_free(cold);
    mem_free(other);
    mem_free(warm);
}

/* 1000 names of two words. */
static char *many_choices(void)
{
    static const char *const left[] = {"red",  "green", "blue",  "small", "large",
                                       "fast", "slow",  "quiet", "loud",  "bright"};
    char *text = mem_alloc(64 * 1024);
    size_t used = 1;
    text[0] = '[';
    for (unsigned i = 0; i < 1000; i++)
        used += (size_t)snprintf(text + used, 64, "%s\"%s item %u\"", i ? "," : "", left[i % 10],
                                 i / 10);
    (void)snprintf(text + used, 2, "]");
    return text;
}

static struct model_card *load_card(const char *path)
{
    struct model_card *card = model_card_new();
    struct gguf *gguf = NULL;
    struct errmsg err;
    if (gguf_open(path, &gguf, &err) < 0 || card_words_from_gguf(gguf, card, &err) < 0) {
        (void)fprintf(stderr, "%s\n", err.text);
        exit(1);
    }
    gguf_close(gguf);
    card->vocab_size = card->tokens.count;
    return card;
}

int main(int argc, char **argv)
{
    char *choices = many_choices();
    const struct sample samples[] = {
        {"json_object", GRAMMAR_JSON_OBJECT, "", json_first, json_other},
        {"json_schema", GRAMMAR_JSON_SCHEMA, order_schema, order_first, order_other},
        {"regex", GRAMMAR_REGEX,
         "[A-Z][a-z]{1,30}( [A-Z][a-z]{1,30}){1,3} <[\\w.+-]+@[\\w-]+(\\.[\\w-]+)+>, \\d{4}-\\d{2}",
         "Ada King Lovelace <ada.lovelace@analytical-engine.example.org>, 1843-10",
         "Grace Hopper <grace@navy.mil>, 1952-05"},
        {"choice_1000", GRAMMAR_CHOICE, choices, "bright item 42", "slow item 7"},
        {"ebnf_arithmetic", GRAMMAR_EBNF, arithmetic, "(1 + 22) * ((3.5 - 4) / 17) + 100 = 99",
         "2*(3+(4*5)) = 46"},
    };
    struct model_card *card =
        load_card(argc > 1 ? argv[1] : model_path("SmolLM2-135M-Instruct.Q4_1.gguf"));
    double start = now_us();
    struct grammar_vocab *vocab = grammar_vocab_new(card);
    (void)printf("# vocabulary of %u tokens: %u nodes, longest token %u bytes, built in %.1f ms\n",
                 vocab->count, vocab->nodes_count, vocab->token_bytes_max,
                 (now_us() - start) * 1e-3);
    (void)printf("grammar,tokens,compile,cold_p50,cold_p99,cold_max,cold_sum,other_p50,other_p99,"
                 "warm_p50,warm_p99,take_p99\n");
    for (size_t i = 0; i < sizeof(samples) / sizeof(samples[0]); i++)
        run(vocab, &samples[i]);
    grammar_vocab_free(vocab);
    model_card_unref(card);
    mem_free(choices);
    return 0;
}
