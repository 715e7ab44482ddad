/* thinking.c - the router's own splitter over the bytes of each token, and a count.
 *
 * A tag that was begun when the budget ran out ("</thi") is followed by the whole one: the splitter
 * begins anew at its first byte, so what was begun is thinking. */
#include "worker/sample/thinking.h"

#include <errno.h>
#include <string.h>

#include "proto/base/assert.h"
#include "proto/base/mem.h"
#include "proto/reasoning.h"
#include "proto/sampling_limits.h"
#include "proto/token_text.h"

struct thinking {
    const struct model_card *card;
    struct reasoning_format format;
    char begin[THINKING_TAG_BYTES_MAX + 1], end[THINKING_TAG_BYTES_MAX + 1];
    struct reasoning reasoning;
    struct buffer text; /* what the splitter gives out: nobody looks at it */
    uint32_t tokens_max, tokens;
    uint32_t end_ids[THINKING_END_IDS_MAX];
    uint32_t end_count, forced; /* of end_ids, how many were */
};

static int take_tag(const char *name, const char *text, size_t bytes,
                    char ret_tag[THINKING_TAG_BYTES_MAX + 1], struct errmsg *err)
{
    if (bytes == 0 || bytes > THINKING_TAG_BYTES_MAX || memchr(text, '\0', bytes))
        return errmsg_set(err, -EINVAL, "thinking: the %s tag has %zu bytes; 1 to %u fit", name,
                          bytes, THINKING_TAG_BYTES_MAX);
    if (memchr(text + 1, text[0], bytes - 1))
        return errmsg_set(err, -EINVAL, "thinking: the %s tag has its first byte twice", name);
    memcpy(ret_tag, text, bytes);
    ret_tag[bytes] = '\0';
    return 0;
}

static int take_ids(struct thinking *thinking, const struct thinking_input *input,
                    struct errmsg *err)
{
    size_t count = input->end_ids_bytes / sizeof(uint32_t);

    if (input->end_ids_bytes % sizeof(uint32_t) != 0 || count == 0 || count > THINKING_END_IDS_MAX)
        return errmsg_set(err, -EINVAL, "thinking: %zu bytes of end tokens; 1 to %u tokens fit",
                          input->end_ids_bytes, THINKING_END_IDS_MAX);
    memcpy(thinking->end_ids, input->end_ids, input->end_ids_bytes);
    thinking->end_count = (uint32_t)count;
    for (size_t i = 0; i < count; i++) {
        if (thinking->end_ids[i] >= thinking->card->vocab_size)
            return errmsg_set(err, -EINVAL, "thinking: token id %u; the vocabulary has %u",
                              thinking->end_ids[i], thinking->card->vocab_size);
    }
    return 0;
}

/* What a step appends at most, so that no step allocates. */
static void make_room(struct buffer *text)
{
    char room[THINKING_TOKEN_BYTES_MAX + REASONING_HELD_MAX] = {0};

    buffer_init(text, SIZE_MAX);
    buffer_append(text, room, sizeof(room));
    buffer_clear(text);
}

int thinking_new(const struct thinking_input *input, const struct model_card *card,
                 struct thinking **ret_thinking, struct errmsg *err)
{
    struct thinking *thinking = mem_zalloc(sizeof(*thinking));

    thinking->card = card;
    thinking->tokens_max = input->tokens_max;
    make_room(&thinking->text);
    int r = take_tag("begin", input->begin, input->begin_bytes, thinking->begin, err);
    if (r == 0)
        r = take_tag("end", input->end, input->end_bytes, thinking->end, err);
    if (r == 0)
        r = take_ids(thinking, input, err);
    if (r < 0) {
        thinking_free(thinking);
        return r;
    }
    thinking->format = (struct reasoning_format){
        .name = "", .begin = thinking->begin, .end = thinking->end, .opened = input->opened};
    reasoning_init(&thinking->reasoning, &thinking->format,
                   input->inside ? REASONING_INSIDE : REASONING_START);
    *ret_thinking = thinking;
    return 0;
}

void thinking_free(struct thinking *thinking)
{
    if (thinking == NULL)
        return;
    buffer_done(&thinking->text);
    mem_free(thinking);
}

static bool is_inside(const struct thinking *thinking)
{
    return thinking->reasoning.state == REASONING_INSIDE;
}

bool thinking_forces(const struct thinking *thinking, uint32_t *ret_id)
{
    if (!is_inside(thinking) || thinking->tokens < thinking->tokens_max ||
        thinking->forced == thinking->end_count)
        return false;
    *ret_id = thinking->end_ids[thinking->forced];
    return true;
}

void thinking_take(struct thinking *thinking, uint32_t id)
{
    const struct model_card *card = thinking->card;
    char bytes[THINKING_TOKEN_BYTES_MAX];
    bool before = is_inside(thinking);
    size_t stored_bytes, count = 0;
    uint32_t forced;

    ASSERT(id < card->vocab_size);
    if (thinking->reasoning.state == REASONING_AFTER)
        return;
    if (thinking_forces(thinking, &forced)) {
        ASSERT(id == forced);
        thinking->forced++;
    }
    const char *stored = string_table_get(&card->tokens, id, &stored_bytes);
    if (stored_bytes <= sizeof(bytes))
        count = token_text_decode(card->tokenizer, (enum token_type)card->token_types[id], stored,
                                  stored_bytes, bytes);
    reasoning_push(&thinking->reasoning, bytes, count, &thinking->text, &thinking->text);
    buffer_clear(&thinking->text);
    thinking->tokens += before && is_inside(thinking);
}
