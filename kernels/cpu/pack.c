/* pack.c - stored rows -> panels (layouts: family.h). Done once per weight, at load.
 *
 * Nothing is quantised again: nibbles and bytes keep their values, scales and mins become f16.
 * For Q4_0, Q4_1, Q5_0, Q5_1, Q8_0 and IQ4_NL that is exact; the K types' product of two scales is
 * rounded to f16, 2^-12 of the value, small against the 2^-8 of the activations. Floats stay as
 * they are. Padding outputs are zeros. */
#include <string.h>

#include "kernels/cpu/cpu.h"
#include "proto/base/assert.h"

enum panel_class pack_class(enum dtype dtype)
{
    static const enum panel_class classes[] = {
        [DTYPE_F32] = PANEL_F32, [DTYPE_F16] = PANEL_F16,   [DTYPE_BF16] = PANEL_BF16,
        [DTYPE_Q4_0] = PANEL_U4, [DTYPE_Q4_1] = PANEL_U4,   [DTYPE_Q4_K] = PANEL_U4,
        [DTYPE_Q5_0] = PANEL_U5, [DTYPE_Q5_1] = PANEL_U5,   [DTYPE_Q5_K] = PANEL_U5,
        [DTYPE_Q6_K] = PANEL_S6, [DTYPE_Q8_0] = PANEL_S8,   [DTYPE_Q2_K] = PANEL_U2,
        [DTYPE_Q3_K] = PANEL_S6, [DTYPE_IQ4_NL] = PANEL_S8,
    };
    ASSERT(dtype_info(dtype) != NULL);
    return classes[dtype];
}

static size_t group_bytes(enum panel_class class)
{
    size_t values = (size_t)GROUP * PANEL;
    return panel_headers(class) * PANEL * sizeof(uint16_t) +
           (panel_has_nibbles(class) ? values / 2 : values);
}

size_t pack_panel_bytes(enum panel_class class, bool by_output, uint32_t columns)
{
    if (panel_is_quantised(class))
        return columns / GROUP * group_bytes(class);
    if (class == PANEL_BF16)
        columns = by_output ? (columns + 31) / 32 * 32 : columns + columns % 2; /* whole pairs */
    return (size_t)columns * PANEL * (class == PANEL_F32 ? sizeof(float) : sizeof(uint16_t));
}

static void put_header(uint16_t *vector, uint32_t lane, float value)
{
    vector[lane] = f32_to_f16(value);
}

/* The values of output `lane`, next to each other. */
static void put_by_output(enum panel_class class, uint8_t *to, uint32_t lane,
                          const struct dtype_group *group)
{
    if (!panel_has_nibbles(class)) {
        memcpy(to + lane * GROUP, group->q, GROUP);
        return;
    }
    to += lane * (GROUP / 2);
    for (uint32_t k = 0; k < GROUP; k++) {
        uint8_t *byte = &to[k % 8 * 2 + k / 16];
        *byte = (uint8_t)(*byte | group->q[k] << (k / 8 % 2 * 4));
    }
}

static void put_headers(enum panel_class class, uint16_t *header, uint32_t lane,
                        const struct dtype_group *group)
{
    bool halves = class == PANEL_S6 || class == PANEL_U2;
    put_header(header, lane, group->scale[0]);
    if (halves)
        put_header(header + PANEL, lane, group->scale[1]);
    if (class == PANEL_U4 || class == PANEL_U5)
        put_header(header + PANEL, lane, group->min[0]);
    for (unsigned h = 0; h < 2 && class == PANEL_U2; h++)
        put_header(header + (size_t)(2 + h) * PANEL, lane, group->min[h]);
}

static void put_group(const struct cpu_segment *segment, uint8_t *to, uint32_t lane,
                      const struct dtype_group *group)
{
    enum panel_class class = segment->class;
    uint8_t *quads = to + panel_headers(class) * PANEL * sizeof(uint16_t);
    put_headers(class, (uint16_t *)to, lane, group);
    if (segment->by_output) {
        put_by_output(class, quads, lane, group);
        return;
    }
    for (uint32_t k = 0; k < GROUP; k++) {
        uint32_t quad = k / 4, i = k % 4;
        if (panel_has_nibbles(class)) {
            uint8_t *byte = &quads[quad / 2 * 64 + lane * 4 + i];
            *byte = (uint8_t)(*byte | group->q[k] << (quad % 2 * 4));
        } else {
            quads[quad * 64 + lane * 4 + i] = (uint8_t)group->q[k];
        }
    }
}

static void put_quantised(const struct cpu_segment *segment, uint8_t *panel, uint32_t lane,
                          const struct pack_source *source, uint32_t columns)
{
    size_t bytes = group_bytes(segment->class);
    for (uint32_t g = 0; g < columns / GROUP; g++) {
        struct dtype_group group;
        dtype_read_group(source->dtype, source->row, g, &group);
        put_group(segment, panel + g * bytes, lane, &group);
    }
}

static void put_floats(const struct cpu_segment *segment, uint8_t *panel, uint32_t lane,
                       const struct pack_source *source, uint32_t columns)
{
    enum panel_class class = segment->class;
    size_t value_bytes = class == PANEL_F32 ? sizeof(float) : sizeof(uint16_t);
    for (size_t k = 0; k < columns; k++) {
        size_t place = class != PANEL_BF16  ? k * PANEL + lane
                       : segment->by_output ? BY_OUTPUT(k, lane)
                                            : PAIRED(k, lane);
        memcpy(panel + place * value_bytes, (const uint8_t *)source->row + k * value_bytes,
               value_bytes);
    }
}

void pack_panel(const struct cpu_segment *segment, uint32_t panel,
                const struct pack_source *sources, uint32_t columns)
{
    uint8_t *to = segment->data + panel * segment->panel_bytes;
    uint32_t first = panel * PANEL;
    memset(to, 0, segment->panel_bytes);
    for (uint32_t lane = 0; lane < PANEL && first + lane < segment->rows; lane++) {
        const struct pack_source *source = &sources[first + lane];
        if (panel_is_quantised(segment->class))
            put_quantised(segment, to, lane, source, columns);
        else
            put_floats(segment, to, lane, source, columns);
    }
}
