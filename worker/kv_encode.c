/* kv_encode.c - runs of blocks -> msgpack, by msgpack-c into our buffer. */
#include "worker/kv_encode.h"

#include <msgpack.h>
#include <string.h>

struct encoder {
    const struct kv_encoding *encoding;
    const struct output *output;
    msgpack_packer packer;
};

static int write_bytes(void *data, const char *bytes, size_t count)
{
    buffer_append(data, bytes, count);
    return 0;
}

static void pack_text(struct encoder *encoder, const char *text)
{
    size_t bytes = strlen(text);
    (void)msgpack_pack_str(&encoder->packer, bytes);
    (void)msgpack_pack_str_body(&encoder->packer, text, bytes);
}

static void pack_hash(struct encoder *encoder, const struct block_hash *hash)
{
    if (encoder->encoding->int_hashes) {
        (void)msgpack_pack_uint64(&encoder->packer, hash->low);
        return;
    }
    (void)msgpack_pack_bin(&encoder->packer, sizeof(*hash));
    (void)msgpack_pack_bin_body(&encoder->packer, hash, sizeof(*hash));
}

/* An event's head: a map of `fields` entries and its type, or an array that begins with it. */
static void pack_head(struct encoder *encoder, const char *type, size_t fields)
{
    if (encoder->encoding->arrays) {
        (void)msgpack_pack_array(&encoder->packer, fields + 1);
    } else {
        (void)msgpack_pack_map(&encoder->packer, fields + 1);
        pack_text(encoder, "type");
    }
    pack_text(encoder, type);
}

static void pack_name(struct encoder *encoder, const char *name)
{
    if (!encoder->encoding->arrays)
        pack_text(encoder, name);
}

/* The old arrays have no place for it. */
static size_t group_fields(const struct encoder *encoder)
{
    return encoder->encoding->windows && !encoder->encoding->arrays ? 1 : 0;
}

static void pack_group(struct encoder *encoder)
{
    if (group_fields(encoder) == 0)
        return;
    pack_name(encoder, "group_idx");
    (void)msgpack_pack_uint32(&encoder->packer, 0);
}

static bool continues(const struct output_stored *before, const struct output_stored *block)
{
    return block_hash_equal(before->hash, block->parent);
}

/* Blocks from `first` on that are each other's children. */
static uint32_t run_length(const struct output *output, uint32_t first)
{
    uint32_t end = first + 1;
    while (end < output->stored_count && continues(&output->stored[end - 1], &output->stored[end]))
        end++;
    return end - first;
}

static void pack_stored(struct encoder *encoder, uint32_t first, uint32_t count)
{
    const struct output_stored *blocks = encoder->output->stored + first;
    const struct adapters *adapters = encoder->encoding->adapters;
    const char *adapter = adapters != NULL ? adapters_name(adapters, blocks[0].adapter) : NULL;
    msgpack_packer *packer = &encoder->packer;

    /* An array keeps the place of lora_id, which vLLM has before medium. */
    pack_head(encoder, "BlockStored",
              (encoder->encoding->arrays ? 6 : 5 + group_fields(encoder)) +
                  (adapter != NULL ? 1u : 0u));
    pack_name(encoder, "block_hashes");
    (void)msgpack_pack_array(packer, count);
    for (uint32_t i = 0; i < count; i++)
        pack_hash(encoder, &blocks[i].hash);
    pack_name(encoder, "parent_block_hash");
    if (blocks[0].first)
        (void)msgpack_pack_nil(packer);
    else
        pack_hash(encoder, &blocks[0].parent);
    pack_name(encoder, "token_ids");
    (void)msgpack_pack_array(packer, (size_t)count * BLOCK_TOKENS);
    for (uint32_t i = 0; i < count * BLOCK_TOKENS; i++)
        (void)msgpack_pack_uint32(packer, blocks[i / BLOCK_TOKENS].ids[i % BLOCK_TOKENS]);
    pack_name(encoder, "block_size");
    (void)msgpack_pack_uint32(packer, BLOCK_TOKENS);
    if (encoder->encoding->arrays)
        (void)msgpack_pack_nil(packer);
    pack_name(encoder, "medium");
    pack_text(encoder, "GPU");
    if (adapter != NULL) {
        pack_name(encoder, "lora_name");
        pack_text(encoder, adapter);
    }
    pack_group(encoder);
}

static void pack_removed(struct encoder *encoder)
{
    const struct output *output = encoder->output;
    pack_head(encoder, "BlockRemoved", 2 + group_fields(encoder));
    pack_name(encoder, "block_hashes");
    (void)msgpack_pack_array(&encoder->packer, output->removed_count);
    for (uint32_t i = 0; i < output->removed_count; i++)
        pack_hash(encoder, &output->removed[i]);
    pack_name(encoder, "medium");
    pack_text(encoder, "GPU");
    pack_group(encoder);
}

void kv_encode_batch(const struct kv_encoding *encoding, const struct output *output, double ts,
                     struct buffer *out)
{
    struct encoder encoder = {.encoding = encoding, .output = output};
    size_t events = (output->removed_count > 0 ? 1 : 0) + (output->all_cleared ? 1 : 0);

    for (uint32_t i = 0; i < output->stored_count; i += run_length(output, i))
        events++;
    msgpack_packer_init(&encoder.packer, out, write_bytes);
    (void)msgpack_pack_array(&encoder.packer, 3);
    (void)msgpack_pack_double(&encoder.packer, ts);
    (void)msgpack_pack_array(&encoder.packer, events);
    for (uint32_t i = 0; i < output->stored_count;) {
        uint32_t count = run_length(output, i);
        pack_stored(&encoder, i, count);
        i += count;
    }
    if (output->removed_count > 0)
        pack_removed(&encoder);
    if (output->all_cleared)
        pack_head(&encoder, "AllBlocksCleared", 0);
    (void)msgpack_pack_uint32(&encoder.packer, encoding->group);
}
