/* bench_tokenizer.c - MB/s of encoding, start-up time, and a megabyte of one thing.
 *
 *   bench_tokenizer [NAME...]         prints CSV:
 * vocabulary,text,megabytes,ids,cpu_seconds,mb_per_s; with names only vocabularies and texts that
 * have one in theirs bench_tokenizer --dump TEXT FILE  writes that text bench_tokenizer --peer PATH
 * FILE  a fresh tokenizer from PATH over the file, in pieces as bench_tokenizer_peers.py cuts them:
 * megabytes ids cpu_seconds
 *
 * "cold" is a fresh tokenizer; "warm" the same text again. Every run of the first form is checked:
 * the ids give the text back. One thread. */
#include <math.h>
#include <stdarg.h>
#include <stddef.h>
#include <time.h>

#include "proto/files/card_path.h"
#include "router/text/detokenize.h"
#include "router/text/tokenizer.h"
#include "router/text/unicode.h"

#ifndef SHARED_DIR
#define SHARED_DIR "../shared"
#endif
#include "tests/unit/router/text/cards.h"

#define TEXT_BYTES (1u << 20)
#define PIECE_BYTES 4096u /* of --peer: a message, not a book */

/* Of this thread: the machine may be busy with other things. */
static uint64_t cpu_ns(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

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

/* GPT-2's byte alphabet -> bytes. */
static size_t from_alphabet(const char *text, char *ret_bytes)
{
    size_t out = 0, bytes = strlen(text);
    for (size_t at = 0; at < bytes;) {
        uint32_t length = 0, cp = utf8_decode(text + at, &length);
        uint32_t n = cp - 0x100;
        ret_bytes[out++] = (char)(cp < 0x100 ? cp : n <= 0x20 ? n : n <= 0x42 ? n + 0x5e : 0xad);
        at += length;
    }
    return out;
}

/* The dialogues of mtbench101, a JSON object per line, joined; no line twice. */
static struct sample dialogues(const char *name)
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
            buffer_append_text(&all, json_string_value(json_object_get(turn, "user")));
            buffer_append_char(&all, '\n');
            buffer_append_text(&all, json_string_value(json_object_get(turn, "bot")));
            buffer_append_char(&all, '\n');
        }
        json_decref(line);
        at = newline == NULL ? NULL : newline + 1;
    }
    mem_free(file.data);
    struct sample sample = {name, NULL, 0};
    sample.text = buffer_take(&all, &sample.bytes);
    return sample;
}

/* No Chinese text lies with the cases, so one is made of Qwen2's own Chinese tokens: the lower the
 * id the likelier (Zipf), a comma or a full stop after 3 to 12 of them, as in prose. */
static struct sample chinese(const char *name)
{
    struct file_bytes tokens = read_file(CASES_DIR "qwen2.tokens.txt.gz", 8u << 20);
    const char **words = mem_calloc(200000, sizeof(*words));
    struct buffer all;
    uint64_t seed = 1;
    size_t count = 0, left = 5;
    char text[512];
    buffer_init(&all, TEXT_BYTES * 2);
    for (char *line = tokens.data == NULL ? NULL : strtok(tokens.data, "\n"); line != NULL;
         line = strtok(NULL, "\n")) {
        size_t bytes = from_alphabet(line, text);
        uint32_t first = (unsigned char)text[0];
        if (bytes >= 3 && first >= 0xe4 && first <= 0xe9 && utf8_valid_bytes(text, bytes) == bytes)
            words[count++] = mem_strndup(text, bytes);
    }
    while (count > 0 && all.bytes < TEXT_BYTES) {
        seed = seed * UINT64_C(6364136223846793005) + 1442695040888963407u;
        double uniform = (double)(seed >> 11) * 0x1p-53;
        buffer_append_text(&all, words[(size_t)(exp(uniform * log((double)count))) - 1]);
        if (--left == 0) {
            buffer_append_text(&all, (seed >> 20) % 4 == 0 ? "。" : "，");
            left = 3 + (seed >> 24) % 10;
        }
    }
    for (size_t i = 0; i < count; i++)
        mem_free((void *)(uintptr_t)words[i]);
    mem_free(words);
    mem_free(tokens.data);
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
    uint64_t start = cpu_ns();
    ASSERT(tokenizer_encode(tokenizer, sample->text, sample->bytes, NULL, &ids) == 0);
    double seconds = (double)(cpu_ns() - start) * 1e-9, megabytes = (double)sample->bytes * 1e-6;
    printf("%s,%s-%s,%.3f,%zu,%.4f,%.1f\n", vocabulary, sample->name, state, megabytes, ids.count,
           seconds, megabytes / seconds);
    (void)fflush(stdout);
    if (check)
        check_round_trip(tokenizer, sample, &ids);
    token_ids_done(&ids);
}

/* Which runs were asked for: all, or those with one of the names in theirs. */
struct wanted {
    char **names;
    int count;
};

static bool is_wanted(const struct wanted *wanted, const char *vocabulary, const char *text)
{
    char run[128];
    (void)snprintf(run, sizeof(run), "%s-%s", vocabulary, text);
    for (int i = 0; i < wanted->count; i++) {
        if (strstr(run, wanted->names[i]) != NULL)
            return true;
    }
    return wanted->count == 0;
}

static void run_vocabulary(const char *name, struct model_card *card, const struct sample *samples,
                           size_t count, const struct wanted *wanted)
{
    if (card == NULL)
        return;
    for (size_t i = 0; i < count; i++) {
        struct tokenizer *tokenizer = NULL;
        struct errmsg err = {{0}};
        if (samples[i].bytes == 0 || !is_wanted(wanted, name, samples[i].name))
            continue;
        uint64_t start = cpu_ns();
        int r = tokenizer_new(card, &tokenizer, &err);
        ASSERT(r == 0);
        if (i == 0)
            printf("# %s: start-up %.1f ms\n", name, (double)(cpu_ns() - start) * 1e-6);
        run_once(name, tokenizer, &samples[i], "cold", true);
        run_once(name, tokenizer, &samples[i], "warm", false);
        tokenizer_free(tokenizer);
    }
    model_card_unref(card);
}

/* Length of the next piece: up to PIECE_BYTES, to behind its last newline if it has one, else to
 * the last whole character. */
static size_t next_piece(const char *text, size_t bytes)
{
    if (bytes <= PIECE_BYTES)
        return bytes;
    const char *newline = memrchr(text, '\n', PIECE_BYTES);
    return newline != NULL ? (size_t)(newline + 1 - text) : utf8_valid_bytes(text, PIECE_BYTES);
}

static int run_peer(const char *path, const char *file)
{
    struct file_bytes text = read_file(file, 64u << 20);
    struct model_card *card = NULL;
    struct tokenizer *tokenizer = NULL;
    struct errmsg err = {{0}};
    struct token_ids ids;
    if (text.data == NULL || card_from_path(path, "bench", &card, &err) < 0 ||
        tokenizer_new(card, &tokenizer, &err) < 0) {
        (void)fprintf(stderr, "%s: %s\n", path, err.text);
        return 1;
    }
    token_ids_init(&ids, (size_t)64 << 20);
    uint64_t start = cpu_ns();
    for (size_t at = 0, length; at < text.bytes; at += length) {
        length = next_piece(text.data + at, text.bytes - at);
        ASSERT(length > 0);
        ASSERT(tokenizer_encode(tokenizer, text.data + at, length, NULL, &ids) == 0);
    }
    printf("%.6f %zu %.6f\n", (double)text.bytes * 1e-6, ids.count,
           (double)(cpu_ns() - start) * 1e-9);
    token_ids_done(&ids);
    tokenizer_free(tokenizer);
    model_card_unref(card);
    mem_free(text.data);
    return 0;
}

static int dump(const struct sample *samples, size_t count, const char *name, const char *path)
{
    for (size_t i = 0; i < count; i++) {
        if (strcmp(samples[i].name, name) != 0)
            continue;
        FILE *out = fopen(path, "wb");
        ASSERT(out != NULL);
        size_t written = fwrite(samples[i].text, 1, samples[i].bytes, out);
        return fclose(out) == 0 && written == samples[i].bytes ? 0 : 1;
    }
    (void)fprintf(stderr, "no text '%s'\n", name);
    return 1;
}

int main(int argc, char **argv)
{
    const struct wanted wanted = {argv + 1, argc - 1};
    int r = 0;
    if (argc == 4 && strcmp(argv[1], "--peer") == 0)
        return run_peer(argv[2], argv[3]);
    struct sample samples[] = {
        dialogues("english"),          chinese("chinese"),
        from_file("code", __FILE__),   repeat("letter", "a"),
        repeat("two-letters", "ab"),   repeat("emoji", "\xf0\x9f\x98\x80"),
        repeat("spaces", " "),         repeat("newlines", "\n"),
        repeat("digits", "9"),         repeat("marks", "\xcc\x81\xcc\xa3"),
        repeat("han", "\xe4\xb8\xad"),
    };
    const size_t count = sizeof(samples) / sizeof(samples[0]);
    if (argc == 4 && strcmp(argv[1], "--dump") == 0) {
        r = dump(samples, count, argv[2], argv[3]);
        goto out;
    }
    printf("vocabulary,text,megabytes,ids,cpu_seconds,mb_per_s\n");
    run_vocabulary("qwen2", card_from_qwen2(), samples, count, &wanted);
    run_vocabulary("smollm2", card_from_gguf(model_path("SmolLM2-135M-Instruct.Q4_1.gguf")),
                   samples, count, &wanted);
    run_vocabulary("deepseek-llm", card_from_gguf(CASES_DIR "ggml-vocab-deepseek-llm.gguf.gz"),
                   samples, count, &wanted);
    run_vocabulary("o200k", card_from_tiktoken(CASES_DIR "o200k_base.tiktoken.gz", "o200k"),
                   samples, count, &wanted);
    run_vocabulary("phi-3", card_from_gguf(CASES_DIR "ggml-vocab-phi-3.gguf.gz"), samples, count,
                   &wanted);
out:
    for (size_t i = 0; i < count; i++)
        mem_free(samples[i].text);
    return r;
}
