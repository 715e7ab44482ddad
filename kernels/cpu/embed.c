/* embed.c - one row out of the panels: every class keeps a row readable, value by value.
 *
 * Cost: about a microsecond per thousand values; a prompt's rows are spread over the threads. */
#include <string.h>

#include "kernels/cpu/cpu.h"
#include "proto/base/assert.h"

#define ROW_NS 1500

static float header(const uint8_t *group, uint32_t vector, uint32_t lane)
{
    uint16_t half;
    memcpy(&half, group + (vector * PANEL + lane) * sizeof(half), sizeof(half));
    return f16_to_f32(half);
}

static int value_by_output(enum panel_class class, const uint8_t *values, uint32_t lane, uint32_t k)
{
    if (panel_has_nibbles(class))
        return values[lane * (GROUP / 2) + k % 8 * 2 + k / 16] >> (k / 8 % 2 * 4) & 0xf;
    return (int8_t)values[lane * GROUP + k];
}

static int quad_value(enum panel_class class, const uint8_t *quads, uint32_t lane, uint32_t k)
{
    if (panel_has_nibbles(class))
        return quads[k / 8 * 64 + lane * 4 + k % 4] >> (k / 4 % 2 * 4) & 0xf;
    return (int8_t)quads[k / 4 * 64 + lane * 4 + k % 4];
}

static void read_quantised(const struct cpu_segment *segment, const uint8_t *panel, uint32_t lane,
                           float *to, uint32_t columns)
{
    enum panel_class class = segment->class;
    unsigned headers = panel_headers(class);
    bool halves = class == PANEL_S6 || class == PANEL_U2;
    size_t group_bytes = segment->panel_bytes / (columns / GROUP);
    for (uint32_t g = 0; g < columns / GROUP; g++) {
        const uint8_t *group = panel + g * group_bytes;
        const uint8_t *quads = group + (size_t)headers * PANEL * sizeof(uint16_t);
        float scale[2] = {header(group, 0, lane), header(group, halves ? 1 : 0, lane)};
        float min[2] = {0, 0};
        if (class == PANEL_U4 || class == PANEL_U5)
            min[0] = min[1] = header(group, 1, lane);
        for (unsigned h = 0; h < 2 && class == PANEL_U2; h++)
            min[h] = header(group, 2 + h, lane);
        for (uint32_t k = 0; k < GROUP; k++) {
            int value = segment->by_output ? value_by_output(class, quads, lane, k)
                                           : quad_value(class, quads, lane, k);
            to[g * GROUP + k] = scale[k / 16] * (float)value + min[k / 16];
        }
    }
}

static void read_floats(const struct cpu_segment *segment, const uint8_t *panel, uint32_t lane,
                        float *to, uint32_t columns)
{
    if (segment->class == PANEL_F32) {
        for (size_t k = 0; k < columns; k++)
            memcpy(&to[k], panel + (k * PANEL + lane) * sizeof(float), sizeof(float));
        return;
    }
    bool bf16 = segment->class == PANEL_BF16;
    for (size_t k = 0; k < columns; k++) {
        uint16_t bits;
        size_t place = !bf16                ? k * PANEL + lane
                       : segment->by_output ? BY_OUTPUT(k, lane)
                                            : PAIRED(k, lane);
        memcpy(&bits, panel + place * sizeof(bits), sizeof(bits));
        to[k] = bf16 ? bf16_to_f32(bits) : f16_to_f32(bits);
    }
}

static void read_row(const struct cpu_weight *weight, uint32_t row, float *to)
{
    const struct cpu_segment *segment = weight->segment;
    while (row >= segment->row + segment->rows)
        segment++;
    ASSERT(segment < weight->segment + weight->segments);
    uint32_t n = row - segment->row;
    const uint8_t *panel = segment->data + n / PANEL * segment->panel_bytes;
    if (panel_is_quantised(segment->class))
        read_quantised(segment, panel, n % PANEL, to, weight->base.columns);
    else
        read_floats(segment, panel, n % PANEL, to, weight->base.columns);
}

struct embed_job {
    struct tensor *x;
    const struct cpu_weight *weight;
    const uint32_t *ids;
};

static void embed_rows(const void *context, uint32_t first, uint32_t end)
{
    const struct embed_job *job = context;
    for (uint32_t i = first; i < end; i++)
        read_row(job->weight, job->ids[i], job->x->data + (size_t)i * job->x->stride);
}

void cpu_embed(struct backend *b, struct tensor *x, const struct weight *weight,
               const uint32_t *ids)
{
    const struct embed_job job = {x, (const struct cpu_weight *)weight, ids};
    cpu_run_rows(b, embed_rows, &job, x->rows, ROW_NS);
}
