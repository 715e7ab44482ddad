/* bench_tokenizer.c - MB/s of encoding, start-up time, and a megabyte of one thing.
 *
 *   bench_tokenizer            prints CSV: vocabulary,text,megabytes,ids,seconds,mb_per_s
 *
 * "cold" is a fresh tokenizer; "warm" the same text again. Every run is checked first: the ids give
 * the text back. One thread. */
#include <stdarg.h>
#include <stddef.h>

#include "proto/base/clock.h"
#include "router/text/detokenize.h"
#include "router/text/tokenizer.h"
#include "router/text/unicode.h"

#ifndef SHARED_DIR
#define SHARED_DIR "../shared"
#endif
#include "tests/unit/router/text/cards.h"

#define TEXT_BYTES (1u << 20)

struct sample {
    const char *name;
    char *text;
    size_t bytes;
};

/* Repeat `unit` up to about a megabyte. */
static struct sample repeat(const char *name, const char *unit)
{
    size_t unit_bytes = strlen(unit), count = TEXT_BYTES / unit_bytes;
    struct sample sample = {name, mem_alloc(unit_bytes * count + 1), unit_bytes * count};
    for (size_t i = 0; i < count; i++)
        memcpy(sample.text + i * unit_bytes, unit, unit_bytes);
    return sample;
}

static bool is_chinese(const char *text)
{
    size_t wide = 0, bytes = strlen(text);
    for (size_t i = 0; i < bytes; i++)
        wide += (unsigned char)text[i] >= 0xe4 && (unsigned char)text[i] <= 0xe9;
    return wide * 6 > bytes; /* half of the bytes are CJK */
}

/* The dialogues of mtbench101, a JSON object per line, joined; no line twice. */
static struct sample dialogues(const char *name, bool chinese)
{
    struct file_bytes file = read_file(SHARED_DIR "/cases/traces/mtbench101.jsonl.gz", 32u << 20);
    struct buffer all;
    buffer_init(&all, TEXT_BYTES * 2);
    for (char *at = file.data; at != NULL && *at != '\0' && all.bytes < TEXT_BYTES;) {
        char *newline = strchr(at, '\n');
        json_t *line =
            json_loadb(at, newline == NULL ? strlen(at) : (size_t)(newline - at), 0, NULL);
        json_t *turn = NULL;
        size_t i = 0;
        json_array_foreach(json_object_get(line, "history"), i, turn)
        {
            const char *texts[] = {json_string_value(json_object_get(turn, "user")),
                                   json_string_value(json_object_get(turn, "bot"))};
            for (size_t t = 0; t < 2; t++) {
                if (texts[t] != NULL && is_chinese(texts[t]) == chinese) {
                    buffer_append_text(&all, texts[t]);
                    buffer_append_char(&all, '\n');
                }
            }
        }
        json_decref(line);
        at = newline == NULL ? NULL : newline + 1;
    }
    mem_free(file.data);
    struct sample sample = {name, NULL, 0};
    sample.text = buffer_take(&all, &sample.bytes);
    return sample;
}

static struct sample from_file(const char *name, const char *path)
{
    struct file_bytes file = read_file(path, TEXT_BYTES);
    return (struct sample){name, file.data, utf8_valid_bytes(file.data, file.bytes)};
}

static void check_round_trip(struct tokenizer *tokenizer, const struct sample *sample,
                             const struct token_ids *ids)
{
    struct detokenizer detokenizer;
    struct buffer back;
    buffer_init(&back, (size_t)TEXT_BYTES * 8);
    detokenizer_init(&detokenizer, tokenizer, true,
                     tokenizer_card(tokenizer)->tokenizer == TOKENIZER_SPM);
    for (size_t i = 0; i < ids->count; i++)
        ASSERT(detokenizer_push(&detokenizer, ids->ids[i], &back) == 0);
    detokenizer_finish(&detokenizer, &back);
    if (back.bytes != sample->bytes || memcmp(back.data, sample->text, back.bytes) != 0)
        printf("# %s does not round trip (NFC, or a byte without token)\n", sample->name);
    buffer_done(&back);
}

static void run_once(const char *vocabulary, struct tokenizer *tokenizer,
                     const struct sample *sample, const char *state, bool check)
{
    struct token_ids ids;
    token_ids_init(&ids, (size_t)TEXT_BYTES * 8);
    uint64_t start = clock_ns();
    ASSERT(tokenizer_encode(tokenizer, sample->text, sample->bytes, NULL, &ids) == 0);
    double seconds = (double)(clock_ns() - start) * 1e-9, megabytes = (double)sample->bytes * 1e-6;
    printf("%s,%s-%s,%.3f,%zu,%.4f,%.1f\n", vocabulary, sample->name, state, megabytes, ids.count,
           seconds, megabytes / seconds);
    (void)fflush(stdout);
    if (check)
        check_round_trip(tokenizer, sample, &ids);
    token_ids_done(&ids);
}

static void run_vocabulary(const char *name, struct model_card *card, const struct sample *samples,
                           size_t count)
{
    if (card == NULL)
        return;
    for (size_t i = 0; i < count; i++) {
        struct tokenizer *tokenizer = NULL;
        struct errmsg err = {{0}};
        if (samples[i].bytes == 0)
            continue;
        uint64_t start = clock_ns();
        int r = tokenizer_new(card, &tokenizer, &err);
        ASSERT(r == 0);
        if (i == 0)
            printf("# %s: start-up %.1f ms\n", name, (double)(clock_ns() - start) * 1e-6);
        run_once(name, tokenizer, &samples[i], "cold", true);
        run_once(name, tokenizer, &samples[i], "warm", false);
        tokenizer_free(tokenizer);
    }
    model_card_unref(card);
}

int main(void)
{
    struct sample samples[] = {
        dialogues("english", false),   dialogues("chinese", true),
        from_file("code", __FILE__),   repeat("letter", "a"),
        repeat("two-letters", "ab"),   repeat("emoji", "\xf0\x9f\x98\x80"),
        repeat("spaces", " "),         repeat("newlines", "\n"),
        repeat("digits", "9"),         repeat("marks", "\xcc\x81\xcc\xa3"),
        repeat("han", "\xe4\xb8\xad"),
    };
    const size_t count = sizeof(samples) / sizeof(samples[0]);
    printf("vocabulary,text,megabytes,ids,seconds,mb_per_s\n");
    run_vocabulary("qwen2", card_from_qwen2(), samples, count);
    run_vocabulary("smollm2", card_from_gguf(model_path("SmolLM2-135M-Instruct.Q4_1.gguf")),
                   samples, count);
    run_vocabulary("deepseek-llm", card_from_gguf(CASES_DIR "ggml-vocab-deepseek-llm.gguf.gz"),
                   samples, count);
    run_vocabulary("o200k", card_from_tiktoken(CASES_DIR "o200k_base.tiktoken.gz", "o200k"),
                   samples, count);
    run_vocabulary("phi-3", card_from_gguf(CASES_DIR "ggml-vocab-phi-3.gguf.gz"), samples, count);
    for (size_t i = 0; i < count; i++)
        mem_free(samples[i].text);
    return 0;
}
