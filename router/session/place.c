/* place.c - binary search in the spans. */
#include "router/session/place.h"

static const char *field_of(enum span_source source)
{
    switch (source) {
    case SPAN_CONTENT:
        return "content";
    case SPAN_ROLE:
        return "role";
    case SPAN_TOOLS:
        return "tools";
    case SPAN_DOCUMENTS:
        return "documents";
    default:
        return "chat_template_kwargs";
    }
}

struct place place_find(const struct text_span *spans, size_t count, uint64_t offset)
{
    size_t low = 0, high = count; /* the first span that ends behind the offset */

    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (spans[middle].end > offset)
            high = middle;
        else
            low = middle + 1;
    }
    if (low == count)
        return (struct place){.message = -1, .field = "template"};
    return (struct place){.message = spans[low].message,
                          .field = spans[low].start <= offset ? field_of(spans[low].source)
                                                              : "template"};
}
