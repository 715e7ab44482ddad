/* model_card.h - what a router must know of a model: its words, not its weights.
 *
 * The worker fills a card from the model files and registers it; the router builds tokenizer and
 * template from it, so a router needs no model files. Groups whose fingerprints differ are never
 * mixed under one model name.
 *
 * Ownership: counted; all memory belongs to the card (big arrays are views into one packed copy).
 * Immutable once made, so any thread may read. */
#ifndef REFRAIN_PROTO_MODEL_CARD_H
#define REFRAIN_PROTO_MODEL_CARD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/base/errmsg.h"

#define MODEL_CARD_BYTES_MAX (64u << 20) /* packed card on the wire */
#define MODEL_CARD_TOKENS_MAX (1u << 20)
#define MODEL_CARD_EOS_MAX 16
#define MODEL_CARD_LEAD_MAX 4
#define MODEL_CARD_STEPS_MAX 64u
#define TOKEN_ID_NONE UINT32_MAX

enum tokenizer_model {
    TOKENIZER_BPE = 0, /* byte-level BPE: GGUF "gpt2" */
    TOKENIZER_SPM,     /* SentencePiece-type BPE with scores: GGUF "llama" */
    TOKENIZER_UNIGRAM, /* SentencePiece unigram: GGUF "t5" */
    TOKENIZER_MODELS
};

/* GGUF's numbering of token types. */
enum token_type {
    TOKEN_NORMAL = 1,
    TOKEN_UNKNOWN = 2,
    TOKEN_CONTROL = 3,
    TOKEN_USER_DEFINED = 4,
    TOKEN_UNUSED = 5,
    TOKEN_BYTE = 6,
};
/* Behaviour of an added token next to its neighbours (HF tokenizer.json); bits. */
enum token_flag {
    TOKEN_LSTRIP = 1,
    TOKEN_RSTRIP = 2,
    TOKEN_SINGLE_WORD = 4,
    TOKEN_NORMALIZED = 8, /* looked for in normalized text, not in the raw one */
    TOKEN_NO_PIECE = 16,  /* not in the model's own vocabulary: merging never makes it */
};

/* What decoding takes off the beginning of a text. */
enum decode_strip { DECODE_STRIP_NONE = 0, DECODE_STRIP_SPACE, DECODE_STRIP_SPACES, DECODE_STRIPS };

/* Strings kept back to back: string i is bytes[offsets[i] .. offsets[i + 1]). */
struct string_table {
    uint32_t count;
    const uint32_t *offsets; /* count + 1 */
    const char *bytes;
};

struct model_card {
    char *name;         /* served model name */
    char *architecture; /* "llama" */
    char *fingerprint;  /* 32 hex digits over weights' identity, vocabulary, template */
    uint32_t context_tokens;
    uint32_t vocab_size;

    enum tokenizer_model tokenizer;
    char *pre; /* GGUF pre-tokenizer name ("smollm"), "" when none */
    /* What a tokenizer.json does with the text between added tokens, in order. A step is a word, or
     * a word, a space and its argument; two arguments have a NUL between.
     *   normalizers    NFC NFD NFKC NFKD Lowercase StripLeft StripRight Precompiled
     *                  Prepend TEXT | Replace TEXT TEXT | ReplaceRegex PATTERN TEXT
     *   pretokenizers  Split PATTERN (matches and what lies between), Keep (matches), Remove (the
     *                  rest), Contiguous, MergePrevious, MergeNext; PrefixSpace; Whole (no cut);
     *                  Bytes (what follows sees the byte alphabet);
     *                  Metaspace Always|First|Never [Split]
     * No pretokenizers: those of `pre`. No normalizers: the switches below. */
    struct string_table normalizers, pretokenizers;
    const uint8_t *charsmap; /* SentencePiece's precompiled character map, or NULL */
    uint32_t charsmap_bytes;
    struct string_table tokens;       /* as stored: byte-alphabet for BPE, U+2581 for SPM */
    const uint8_t *token_types;       /* enum token_type, one per token */
    const uint8_t *token_flags;       /* enum token_flag bits, one per token; NULL: none has any */
    const float *scores;              /* one per token, or NULL */
    const double *wide_scores;        /* the same where float is not enough, or NULL */
    struct string_table merges;       /* "left right", rank = index; empty for SPM */
    uint32_t bos, eos, eot, unk, pad; /* TOKEN_ID_NONE when absent */
    bool add_bos, add_eos, add_space_prefix, remove_extra_whitespaces;
    bool ignore_merges; /* a whole pre-token found in the vocabulary is taken directly */
    bool normalize_nfc;
    bool fuse_unk;      /* a run of unknown characters is one `unk` */
    bool double_sums;   /* unigram adds up scores in double (Hugging Face), not in float */
    bool sentencepiece; /* from a tokenizer.model: user-defined tokens are scored, not cut out */
    enum decode_strip decode_strip;
    /* Put around a text with add_special where one bos or eos does not say it; else count 0. */
    uint32_t lead_ids[MODEL_CARD_LEAD_MAX], tail_ids[MODEL_CARD_LEAD_MAX];
    uint32_t lead_count, tail_count;

    char *chat_template;                  /* Jinja source, NULL when the file has none */
    char *tool_template;                  /* of requests with tools; NULL: the same */
    uint32_t eos_ids[MODEL_CARD_EOS_MAX]; /* all ids that end an answer */
    uint32_t eos_count;
    /* Generation defaults of the model; NAN / 0 when it states none. */
    double temperature, top_p, min_p;
    uint32_t top_k;
    double repetition_penalty;
    uint32_t answer_tokens_max; /* of every answer; 0: the context alone bounds them */

    uint32_t refs;
    void *packed; /* what the views point into */
};

/* An empty card, one reference, ids TOKEN_ID_NONE, defaults NAN. The maker sets fields; texts by
 * mem_strdup; tables by model_card_set_table & co, which copy. */
struct model_card *model_card_new(void);
struct model_card *model_card_ref(struct model_card *card);
void model_card_unref(struct model_card *card); /* NULL is fine */

/* Builder for string tables: append, then move into the card. */
struct string_table_builder {
    uint32_t *offsets;
    uint32_t count, count_max;
    char *bytes;
    size_t bytes_used, bytes_max;
};
void string_table_builder_init(struct string_table_builder *builder);
void string_table_builder_done(struct string_table_builder *builder);
int string_table_builder_add(struct string_table_builder *builder, const char *text, size_t bytes);
/* Hands the memory over to *table (freed with the card); the builder is empty afterwards. */
void string_table_builder_move(struct string_table_builder *builder, struct model_card *card,
                               struct string_table *table);
/* Copies count bytes/floats into the card. */
void model_card_set_types(struct model_card *card, const uint8_t *types, const uint8_t *flags,
                          const float *scores);
void model_card_set_wide_scores(struct model_card *card, const double *scores);
void model_card_set_charsmap(struct model_card *card, const void *charsmap, uint32_t bytes);

/* Text of string i and its length. */
static inline const char *string_table_get(const struct string_table *table, uint32_t i,
                                           size_t *ret_bytes)
{
    *ret_bytes = table->offsets[i + 1] - table->offsets[i];
    return table->bytes + table->offsets[i];
}

/* Counts, offsets and ids agree with each other; -EINVAL and a sentence otherwise. */
int model_card_check(const struct model_card *card, struct errmsg *err);
/* XXH3-128 over everything but name, architecture and fingerprint: cards with one digest make the
 * same ids of a text. The card need not be complete. */
void model_card_words_digest(const struct model_card *card, uint64_t ret_digest[2]);
/* Packed form for Hello.card: *ret_data by mem_alloc. */
int model_card_pack(const struct model_card *card, void **ret_data, size_t *ret_bytes,
                    struct errmsg *err);
/* Checks everything; *ret_card has one reference. -EINVAL, -EMSGSIZE. */
int model_card_unpack(const void *data, size_t bytes, struct model_card **ret_card,
                      struct errmsg *err);

#endif
