/* family.h - what one instruction set family (AVX2, AVX-512, AMX) brings: a table.
 *
 * The layouts below are common to all families, so that weights and pages are packed once, by
 * portable code, and a family is one or a few files of arithmetic. A family's functions take a
 * range of rows or panels and know nothing of threads.
 *
 * Every function keeps promise 2: the bits of a row do not depend on `rows` or on the range. */
#ifndef REFRAIN_KERNELS_CPU_FAMILY_H
#define REFRAIN_KERNELS_CPU_FAMILY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kernels/cpu/cpu_features.h"
#include "kernels/ops.h"

/* --- weights ----------------------------------------------------------------------------------
 * Panels of 16 outputs. Quantised classes are rows of groups of 32 along K; a group is
 *   f16 header vectors [16] (scale d, min m, or two scales), then 8 quads of 4 k:
 *   U2   d0 d1 m0 m1 | as U4; values 0..3; d0 and m0 for quads 0..3, d1 and m1 for quads 4..7
 *   U4   d m   | two quads in 64 bytes: byte 4j + i = output j; low nibble k = i, high k = 4 + i
 *   U5   d m   | quad: 64 bytes; byte 4j + i = output j (0..15), k = i; values 0..31
 *   S6   d0 d1 | as U5; values -32..32; d0 for quads 0..3, d1 for quads 4..7
 *   S8   d     | as U5; values -128..127
 * Float classes:
 *   BF16      [K / 2, up] vectors of 16 outputs x 2 k: value 2j + i = output j, k = i
 *   F16, F32  [K] vectors of 16 outputs */
/* Where a family's panels are by_output, the values of one output of a group are neighbours:
 *   U2, U4          16 bytes per output: nibble i of the 16-bit word j = k 8 i + j
 *   U5, S6, S8      32 bytes per output, in the order of k
 *   BF16            [K / 32, up][16 outputs][32 k]
 * with the same headers. F16 and F32 are as above. */
#define BY_OUTPUT(k, output) (((k) / 32 * 16 + (output)) * 32 + (k) % 32)
#define PAIRED(k, lane) (((k) / 2 * 16 + (lane)) * 2 + (k) % 2) /* place of a value in pairs */
#define PANEL 16
#define GROUP 32
#define QUADS (GROUP / 4)
enum panel_class {
    PANEL_U2 = 0,
    PANEL_U4,
    PANEL_U5,
    PANEL_S6,
    PANEL_S8,
    PANEL_BF16,
    PANEL_F16,
    PANEL_F32,
    PANEL_CLASSES,
};

static inline bool panel_is_quantised(enum panel_class class)
{
    return class <= PANEL_S8;
}

/* Values in nibbles, two quads in 64 bytes. */
static inline bool panel_has_nibbles(enum panel_class class)
{
    return class <= PANEL_U4;
}

/* f16 header vectors of a group of a quantised class. */
static inline unsigned panel_headers(enum panel_class class)
{
    return class == PANEL_S8 ? 1 : class == PANEL_U2 ? 4 : 2;
}

/* Rows of x as int8 in groups of 32: x = scale * q, |q| <= 127. */
struct quant_rows {
    int8_t *q;          /* [rows][columns] */
    float *scale_sums;  /* [rows][columns / 32][2]: scale, scale * sum of the group's q */
    int16_t *half_sums; /* [rows][columns / 32][2]: sum of q over each 16 of the group: for the mins
                           of U2, and for families that add a constant to signed weights */
};

/* Rows of x as bf16 in the order of tiles, [rows / 16, up][K / 32, up] of:
 *   PACKED_1, _4, _16  [16 pairs of k][width rows][2]
 *   PACKED_BY_ROW      [16 rows][32 k] */
enum packed_form { PACKED_1 = 0, PACKED_4, PACKED_16, PACKED_BY_ROW };
#define PACKED_FEW 64 /* rows; more are packed by row */
static inline enum packed_form packed_form(uint32_t rows)
{
    return rows == 1            ? PACKED_1
           : rows <= 4          ? PACKED_4
           : rows <= PACKED_FEW ? PACKED_16
                                : PACKED_BY_ROW;
}
static inline uint32_t packed_width(enum packed_form form)
{
    return form == PACKED_1 ? 1 : form == PACKED_4 ? 4 : 16;
}
static inline size_t packed_tile_values(uint32_t width, uint32_t columns)
{
    return ((size_t)columns + 31) / 32 * 32 * width;
}
/* What gemm needs of scratch for rows that are packed by row: B tiles of a block of K, and sums of
 * 512 rows x 32 outputs that wait for the next. */
#define MANY_ROWS 512
#define MANY_B_VALUES (18 * 2 * PANEL * GROUP)
#define MANY_SCRATCH_VALUES (MANY_B_VALUES + MANY_ROWS * 2 * PANEL * 2)

/* y [rows, 16 * panels] (+)= x * panels^T */
struct gemm {
    const uint8_t *panel; /* first of `panels`, panel_bytes apart */
    size_t panel_bytes;
    uint32_t panels, outputs; /* outputs <= 16 * panels: the rest is padding */
    uint32_t columns;         /* K */
    struct quant_rows quant;  /* quantised classes: row 0 is the first of `rows` */
    const float *x;           /* float classes */
    const uint16_t *packed;   /* classes of a family that packs rows: as above, first row's tile */
    enum packed_form form;
    uint16_t *scratch; /* the thread's, MANY_SCRATCH_VALUES; 64-byte aligned */
    size_t x_stride;
    float *y; /* column of the first panel */
    size_t y_stride;
    uint32_t rows;
    bool accumulate;
};

typedef void (*gemm_fn)(const struct gemm *gemm);

/* --- attention --------------------------------------------------------------------------------
 * KV tile of 16 tokens of one head, bf16:
 *   K  [head_dim / 2, up] vectors of 16 tokens x 2 dims
 *   V  [head_dim / 16, up][8] vectors of 16 dims x 2 tokens
 * both in the order of BF16 panels; int8 (KV_INT8 of ops.h):
 *   K  f32 scales [16 tokens], then [head_dim] vectors of 16 tokens
 *   V  f32 scales [16 tokens], then [head_dim / 16, up][16 tokens] vectors of 16 dims
 * Where the tiles of a pool are: kv_pool.c. */
#define KV_INT8_SCALES_BYTES (16 * sizeof(float))
/* Place of token t's dim d in the values of an int8 tile. */
#define KV_INT8_K(d, t) ((size_t)(d)*16 + (t))
#define KV_INT8_V(d, t) ((size_t)(d) / 16 * 256 + (size_t)(t)*16 + (d) % 16)

#define ATTENTION_ROWS 48       /* rows (positions x heads) of a unit, at most */
#define ATTENTION_PARTITION 512 /* tokens per independent softmax, merged in order */

/* Consecutive positions of one sequence x query heads of one KV head, over some partitions. */
struct attention_unit {
    const float *q; /* first position, first head; heads are head_dim apart */
    float *out;     /* as q */
    size_t q_stride, out_stride;
    const uint32_t *table;
    uint32_t position;         /* of the first row */
    uint16_t positions, heads; /* positions * heads <= ATTENTION_ROWS */
    uint32_t kv_head;
    uint32_t partition, partitions; /* first, and how many of them */
    float *partial; /* NULL: write out. Else [partitions][rows][head_dim rounded up to 16 + 2] */
};

struct kv_tiles {
    uint8_t *data;
    size_t block_bytes, k_bytes, pair_bytes; /* of a K tile; of K and V */
};

/* The K tile; V follows. `head`: layer * KV heads of a layer + KV head. */
static inline uint8_t *kv_tile(const struct kv_tiles *tiles, uint32_t block, uint32_t head)
{
    return tiles->data + block * tiles->block_bytes + head * tiles->pair_bytes;
}

struct attention {
    struct kv_tiles tiles;
    uint32_t first_head; /* of the layer, as kv_tile counts */
    uint32_t head_dim, window;
    float scale, softcap; /* softcap 0: none */
};

typedef void (*attend_fn)(const struct attention *attention, const struct attention_unit *unit,
                          float *scratch);

static inline size_t attention_row_floats(uint32_t head_dim)
{
    return (head_dim + 15u) / 16 * 16;
}
/* Floats that one thread needs for a unit: its rows, and a step of 64 or 128 tokens. */
static inline size_t attention_scratch_floats(uint32_t head_dim)
{
    return (ATTENTION_ROWS * 3 + 64) * attention_row_floats(head_dim) + ATTENTION_ROWS * 84 + 3072;
}

/* --- the table -------------------------------------------------------------------------------- */
struct cpu_family {
    const char *name;
    /* As in struct backend: family, layout, its version; by kv_dtype, as all that knows tiles. */
    const char *kv_format[KV_DTYPES];
    uint32_t needs;                /* of enum cpu_feature */
    uint32_t multiply_adds_per_ns; /* of a matmul of many rows, about: how work is cut */
    gemm_fn gemm[PANEL_CLASSES];
    /* Classes whose panels are by_output and whose rows pack_rows packs; rows of the other
     * quantised classes are quantised. pack_rows is NULL where there are none. */
    bool by_output[PANEL_CLASSES];
    void (*pack_rows)(const float *x, size_t x_stride, uint32_t rows, uint32_t columns,
                      enum packed_form form, uint16_t *to);
    /* columns is a multiple of 32 */
    void (*quantise_row)(const float *x, uint32_t columns, const struct quant_rows *to);
    attend_fn attend[KV_DTYPES];
    /* Merge unit->partial, which several calls of attend filled, into out. */
    attend_fn attend_merge[KV_DTYPES];
    void (*rmsnorm_row)(const float *x, const float *w, float eps, uint32_t columns, float *y);
    void (*layernorm_row)(const float *x, const float *w, float eps, uint32_t columns, float *y);
    void (*silu_mul_row)(const float *gate, const float *up, uint32_t columns, float *y);
    void (*gelu_mul_row)(const float *gate, const float *up, uint32_t columns, float *y);
    /* Rotate `heads` heads of `dim`, side by side: 2 * half dims of each; cos_sin [half][2]. */
    void (*rotate_heads)(float *x, uint32_t heads, uint32_t dim, const float *cos_sin,
                         uint32_t half, bool interleaved);
    /* k and v [dim] of one token to its slot of their tiles. */
    void (*write_kv[KV_DTYPES])(const float *k, const float *v, uint32_t dim, uint32_t slot,
                                uint8_t *k_tile, uint8_t *v_tile);
    /* y = exp(x), as softmax and silu compute it; for the contract test. */
    void (*exp_values)(const float *x, float *y, uint32_t count);
};

extern const struct cpu_family avx2_family, avx512_family, amx_family, amx_bf16_family;

/* The best family of this machine, or the one named. NULL: there is none. */
const struct cpu_family *cpu_family_find(const char *name);
/* All families, best first; NULL past the last. */
const struct cpu_family *cpu_family_at(size_t i);
/* NULL: this machine can run it; else the name of the first thing that it lacks. */
const char *cpu_family_missing(const struct cpu_family *family);

#endif
