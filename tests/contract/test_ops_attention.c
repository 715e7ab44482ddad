/* op_rope, op_attention, op_copy_blocks: values against the reference, and bits that depend on
 * neither chunks, batch, order, threads, stale slots nor where a sequence's blocks lie. */
#include <cmocka.h>

#include "tests/unit/kernels/check.h"

#define SEQUENCES_MAX 6

struct shape {
    struct heads heads;
    uint32_t rotary_dims;
    bool interleaved;
    uint32_t window;
    float softcap;
};

/* Two model layers of one backend, with sequences whose qkv rows are known in advance. */
struct world {
    struct backend *b;
    struct shape shape;
    struct kv_pool *kv;
    float *cos_sin;
    uint32_t blocks, tokens, sequences; /* tokens per sequence at most */
    uint32_t *table;                    /* [sequences][table_stride] */
    uint32_t table_stride;
    uint64_t seed;  /* of the values; places differ by `places` */
    float rise;     /* keys grow from 1 to 1 + this, and with them the highest score */
    uint32_t layer; /* that steps run */
};

static uint32_t columns_of(const struct shape *shape)
{
    return (shape->heads.q_heads + 2 * shape->heads.kv_heads) * shape->heads.head_dim;
}

/* qkv row of (sequence, position): the same in every world. */
static void make_row(const struct world *w, uint32_t sequence, uint32_t position, float *row)
{
    uint64_t seed = w->seed + ((uint64_t)sequence << 40) + ((uint64_t)position << 20);
    for (uint32_t i = 0; i < columns_of(&w->shape); i++)
        row[i] = random_normal(&seed);
    const struct heads *heads = &w->shape.heads;
    float *k = row + (size_t)heads->q_heads * heads->head_dim;
    for (uint32_t i = 0; i < heads->kv_heads * heads->head_dim; i++)
        k[i] *= 1 + w->rise * (float)position / (float)w->tokens;
}

/* Blocks are handed out in an order that `places` shuffles, and hold NaN before their first use. */
static struct world *open_world(const char *name, unsigned threads, const struct shape *shape,
                                uint32_t sequences, uint32_t tokens, uint64_t places)
{
    struct world *w = mem_zalloc(sizeof(*w));
    w->b = open_backend(name, threads);
    assert_non_null(w->b);
    w->shape = *shape;
    w->layer = 1;
    w->tokens = tokens;
    w->sequences = sequences;
    w->table_stride = (tokens + 15) / 16;
    w->blocks = sequences * w->table_stride + 3;
    assert_int_equal(op_kv_pool_new(w->b, w->blocks, 2, shape->heads.kv_heads,
                                    shape->heads.head_dim, &w->kv, NULL),
                     0);
    memset(w->kv->data, 0xff, w->blocks * w->kv->block_bytes);
    w->table = mem_calloc(sequences * w->table_stride, sizeof(*w->table));
    for (uint32_t i = 0; i < sequences * w->table_stride; i++)
        w->table[i] = i + 1;
    for (uint32_t i = sequences * w->table_stride - 1; i > 0; i--) {
        uint32_t j = random_u32(&places) % (i + 1), t = w->table[i];
        w->table[i] = w->table[j];
        w->table[j] = t;
    }
    w->cos_sin = mem_calloc((size_t)tokens * shape->rotary_dims, sizeof(*w->cos_sin));
    for (uint32_t p = 0; p < tokens; p++) {
        for (uint32_t i = 0; i < shape->rotary_dims / 2; i++) {
            double angle = p * pow(10000, -2.0 * i / shape->rotary_dims);
            w->cos_sin[p * shape->rotary_dims + 2 * i] = (float)cos(angle);
            w->cos_sin[p * shape->rotary_dims + 2 * i + 1] = (float)sin(angle);
        }
    }
    return w;
}

static void close_world(struct world *w)
{
    op_kv_pool_free(w->b, w->kv);
    backend_close(w->b);
    mem_free(w->table);
    mem_free(w->cos_sin);
    mem_free(w);
}

struct piece { /* rows of one sequence in a step */
    uint32_t sequence, first, count;
};

/* Run one step of w->layer; copies each row's attention into results[sequence][position]. */
static void run_step(struct world *w, const struct piece *pieces, uint32_t count, float *results)
{
    uint32_t rows = 0, columns = columns_of(&w->shape);
    uint32_t out_columns = w->shape.heads.q_heads * w->shape.heads.head_dim;
    uint32_t row_first[SEQUENCES_MAX + 1] = {0};
    uint32_t *table = mem_calloc(count * w->table_stride, sizeof(*table));
    for (uint32_t i = 0; i < count; i++) {
        rows += pieces[i].count;
        row_first[i + 1] = rows;
        memcpy(table + i * w->table_stride, w->table + pieces[i].sequence * w->table_stride,
               w->table_stride * sizeof(*table));
        uint32_t seen = step_first_block(pieces[i].first, w->shape.window);
        for (uint32_t k = 0; k < seen; k++) /* given back: not even looked at */
            table[i * w->table_stride + k] = UINT32_MAX;
    }
    uint32_t *position = mem_calloc(rows, sizeof(*position));
    float *qkv = mem_calloc((size_t)rows * columns, sizeof(*qkv));
    float *out = mem_calloc((size_t)rows * out_columns, sizeof(*out));
    for (uint32_t i = 0, row = 0; i < count; i++) {
        for (uint32_t r = 0; r < pieces[i].count; r++, row++) {
            position[row] = pieces[i].first + r;
            make_row(w, pieces[i].sequence, position[row], qkv + (size_t)row * columns);
        }
    }
    const struct step step = {.rows = rows,
                              .sequences = count,
                              .position = position,
                              .row_first = row_first,
                              .table = table,
                              .table_stride = w->table_stride};
    const struct rope rope = {w->cos_sin, w->tokens, w->shape.rotary_dims, w->shape.interleaved};
    struct tensor tq = tensor_of(qkv, rows, columns), to = tensor_of(out, rows, out_columns);
    op_rope(w->b, &tq, &w->shape.heads, &rope, w->kv, w->layer, &step);
    op_attention(w->b, &to, &tq, &w->shape.heads, w->kv, w->layer, &step,
                 &(struct attention_rule){.scale = 1 / sqrtf((float)w->shape.heads.head_dim),
                                          .softcap = w->shape.softcap,
                                          .window = w->shape.window});
    for (uint32_t i = 0, row = 0; i < count; i++) {
        for (uint32_t r = 0; r < pieces[i].count; r++, row++)
            memcpy(results + ((size_t)pieces[i].sequence * w->tokens + position[row]) * out_columns,
                   out + (size_t)row * out_columns, out_columns * sizeof(*out));
    }
    mem_free(table);
    mem_free(position);
    mem_free(qkv);
    mem_free(out);
}

static size_t result_floats(const struct world *w)
{
    return (size_t)w->sequences * w->tokens * w->shape.heads.q_heads * w->shape.heads.head_dim;
}

/* Every sequence whole, one step each. */
static float *run_whole(struct world *w)
{
    float *results = mem_calloc(result_floats(w), sizeof(*results));
    for (uint32_t s = 0; s < w->sequences; s++)
        run_step(w, &(struct piece){s, 0, w->tokens}, 1, results);
    return results;
}

/* All sequences together, in chunks of `chunk` and the last `decode` tokens one by one; the order
 * of sequences in a step turns from step to step. */
static float *run_chunked(struct world *w, uint32_t chunk, uint32_t decode)
{
    float *results = mem_calloc(result_floats(w), sizeof(*results));
    uint32_t done[SEQUENCES_MAX] = {0}, left = w->sequences;
    for (uint32_t turn = 0; left > 0; turn++) {
        struct piece pieces[SEQUENCES_MAX];
        uint32_t count = 0;
        left = 0;
        for (uint32_t i = 0; i < w->sequences; i++) {
            uint32_t s = (i + turn) % w->sequences, end = w->tokens - decode;
            uint32_t rows = done[s] >= end ? 1 : chunk + s; /* different per sequence */
            if (done[s] < end && rows > end - done[s])
                rows = end - done[s];
            if (done[s] == w->tokens)
                continue;
            pieces[count++] = (struct piece){s, done[s], rows};
            done[s] += rows;
            left += done[s] < w->tokens;
        }
        if (count > 0)
            run_step(w, pieces, count, results);
    }
    return results;
}

static const struct shape shapes[] = {
    {{9, 3, 64, 3, 0}, 64, false, 0, 0},     {{4, 4, 16, 1, 0}, 16, true, 0, 0},
    {{9, 3, 8, 3, 0}, 8, false, 0, 0},       {{4, 2, 18, 2, 0}, 18, false, 0, 0},
    {{8, 2, 24, 4, 0}, 12, true, 0, 0},      {{7, 1, 80, 7, 0}, 80, false, 0, 0},
    {{6, 3, 96, 2, 0}, 48, false, 20, 0},    {{16, 2, 128, 8, 0}, 128, false, 0, 0},
    {{2, 1, 256, 2, 0}, 256, false, 64, 0},  {{3, 2, 64, 4, 2}, 64, false, 0, 0},
    {{60, 1, 32, 60, 0}, 32, false, 3, 0},   {{5, 5, 40, 1, 0}, 40, false, 1, 0},
    {{4, 2, 16, 2, 0}, 16, false, 40, 1.5f},
};
#define SHAPES (sizeof(shapes) / sizeof(shapes[0]))

static void test_attention_when_shapes_vary_is_near_the_reference(void **state)
{
    /* bf16 keys and values: 2^-9 of each; outputs are means of values of size 1. */
    (void)state;
    for (size_t i = 0; i < SHAPES; i++) {
        struct world *r = open_world("ref", 1, &shapes[i], 2, 150, 0);
        struct world *c = open_world("cpu", 2, &shapes[i], 2, 150, 9);
        float *expected = run_whole(r), *got = run_whole(c);
        double errors = 0, values = 0;
        for (size_t k = 0; k < result_floats(r); k++) {
            double error = (double)got[k] - expected[k];
            assert_true(fabs(error) < 0.04);
            errors += error * error;
            values += (double)expected[k] * expected[k];
        }
        assert_true(sqrt(errors / values) < 0.006);
        mem_free(expected);
        mem_free(got);
        close_world(r);
        close_world(c);
    }
}

/* Largest error and root of the mean squared one, relative to the expected values'. */
static void errors_of(const float *got, const float *expected, size_t count, double ret_errors[2])
{
    double errors = 0, values = 0, largest = 0;
    for (size_t k = 0; k < count; k++) {
        double error = (double)got[k] - expected[k];
        largest = fmax(largest, isnan(error) ? INFINITY : fabs(error));
        errors += error * error;
        values += (double)expected[k] * expected[k];
    }
    ret_errors[0] = largest;
    ret_errors[1] = sqrt(errors / values);
}

static void test_int8_when_shapes_vary_is_near_the_reference(void **state)
{
    /* Both keep the same integers, so a family differs by sums in f32. What integers cost: half a
     * scale, 1/254 of a row's largest value, of each key and value. */
    (void)state;
    for (size_t i = 0; i < SHAPES; i++) {
        struct world *plain = open_world("ref", 1, &shapes[i], 2, 100, 0);
        kv_dtype = KV_INT8;
        struct world *r = open_world("ref", 1, &shapes[i], 2, 100, 0);
        struct world *c = open_world("cpu", 2, &shapes[i], 2, 100, 9);
        kv_dtype = KV_BFLOAT16;
        float *exact = run_whole(plain), *expected = run_whole(r), *got = run_whole(c);
        size_t count = result_floats(r);
        double errors[2];
        errors_of(got, expected, count, errors);
        assert_true(errors[0] < 1e-5 && errors[1] < 1e-6);
        errors_of(expected, exact, count, errors);
        assert_true(errors[0] < 0.08 && errors[1] < 0.015);
        assert_true(errors[1] > 1e-4); /* it is int8 indeed */
        mem_free(exact);
        mem_free(expected);
        mem_free(got);
        close_world(plain);
        close_world(r);
        close_world(c);
    }
}

/* The largest score of a row is in one of its last steps, so what is summed by then is scaled down
 * again and again; and partitions have very different bases. Errors of K's bf16 are those of scores
 * up to 40; int8 keeps the same in both. */
static void test_attention_when_scores_rise_is_near_the_reference(void **state)
{
    static const struct shape rising[] = {{{4, 2, 64, 2, 0}, 64, false, 0, 0},
                                          {{6, 1, 18, 6, 0}, 18, false, 90, 0}};
    (void)state;
    for (int i = 0; i < 4; i++) {
        double errors[2];
        kv_dtype = i < 2 ? KV_BFLOAT16 : KV_INT8;
        struct world *r = open_world("ref", 1, &rising[i % 2], 1, 560, 0);
        struct world *c = open_world("cpu", 1, &rising[i % 2], 1, 560, 9);
        volatile float small = 0x1p-126f;
        r->rise = c->rise = 12;
        float *expected = run_whole(r), *got = run_whole(c);
        errors_of(got, expected, result_floats(r), errors);
        assert_true(errors[1] < (i < 2 ? 0.02 : 1e-5));
        small /= 2;
        assert_true(small > 0); /* the thread's arithmetic is as it was: no denormals flushed */
        mem_free(expected);
        mem_free(got);
        close_world(r);
        close_world(c);
    }
    kv_dtype = KV_BFLOAT16;
}

/* Attention of one token to itself alone: its v, as it is kept. */
static void keep_values(const char *name, const float *v, uint32_t dim, float *ret_kept)
{
    const struct heads heads = {1, 1, dim, 1, 0};
    const uint32_t zero = 0, row_first[] = {0, 1};
    const float cos_sin[2] = {1, 0};
    float qkv[3 * 64] = {0};
    struct backend *b = open_backend(name, 1);
    struct kv_pool *kv = NULL;
    assert_int_equal(op_kv_pool_new(b, 1, 1, 1, dim, &kv, NULL), 0);
    memcpy(qkv + (size_t)2 * dim, v, dim * sizeof(*v));
    const struct step step = {.rows = 1,
                              .sequences = 1,
                              .position = &zero,
                              .row_first = row_first,
                              .table = &zero,
                              .table_stride = 1};
    const struct rope rope = {cos_sin, 1, 0, false};
    struct tensor tq = tensor_of(qkv, 1, 3 * dim), to = tensor_of(ret_kept, 1, dim);
    op_rope(b, &tq, &heads, &rope, kv, 0, &step);
    op_attention(b, &to, &tq, &heads, kv, 0, &step, &(struct attention_rule){.scale = 1});
    op_kv_pool_free(b, kv);
    backend_close(b);
}

static void test_int8_when_a_row_is_kept_reads_as_scale_times_integer(void **state)
{
    static const char *const names[] = {"ref", "cpu"};
    float v[18], kept[18];
    uint64_t seed = 8;
    (void)state;
    kv_dtype = KV_INT8;
    for (int i = 0; i < 2; i++) {
        for (int exponent = -28; exponent <= 36; exponent += 8) {
            float size = powf(10, (float)exponent), largest = 0;
            for (int d = 0; d < 18; d++) {
                v[d] = random_normal(&seed) * size;
                largest = fmaxf(largest, fabsf(v[d]));
            }
            keep_values(names[i], v, 18, kept);
            for (int d = 0; d < 18; d++) {
                float expected = largest / 127 * rintf(v[d] * (127 / largest));
                assert_true(kept[d] == expected);
                assert_true(fabsf(kept[d] - v[d]) <= largest / 253.9f);
            }
        }
        for (int d = 0; d < 18; d++) /* 63.5 and 62.5 of 127: ties go to the even one */
            v[d] = d == 0 ? -127.0f : d % 2 == 0 ? 63.5f : 62.5f;
        keep_values(names[i], v, 18, kept);
        assert_true(kept[0] == -127.0f && kept[1] == 62.0f && kept[2] == 64.0f);
        for (int d = 0; d < 18; d++)
            v[d] = 9e-31f;
        keep_values(names[i], v, 18, kept);
        assert_true(kept[0] == 0 && kept[17] == 0);
        for (int bad = 0; bad < 2; bad++) {
            v[5] = bad == 0 ? INFINITY : NAN;
            keep_values(names[i], v, 18, kept);
            assert_true(isnan(kept[0]) && isnan(kept[5]) && isnan(kept[17]));
        }
    }
    kv_dtype = KV_BFLOAT16;
}

/* Softmax of the definition in double, for one row and head, from the rows themselves. */
static void naive_row(struct world *w, uint32_t sequence, uint32_t position, uint32_t head,
                      double *out)
{
    uint32_t dim = w->shape.heads.head_dim, columns = columns_of(&w->shape);
    uint32_t kv = (w->shape.heads.q_offset + head) / w->shape.heads.group;
    float *q = mem_calloc(columns, sizeof(*q)), *row = mem_calloc(columns, sizeof(*row));
    double sum = 0;
    make_row(w, sequence, position, q);
    memset(out, 0, dim * sizeof(*out));
    for (uint32_t p = 0; p <= position; p++) {
        double score = 0;
        if (w->shape.window > 0 && p + w->shape.window <= position)
            continue;
        make_row(w, sequence, p, row);
        const float *k = row + (w->shape.heads.q_heads + kv) * dim;
        const float *v = k + w->shape.heads.kv_heads * dim;
        for (uint32_t d = 0; d < dim; d++) /* rotary_dims 0 in this test */
            score += (double)q[head * dim + d] * k[d];
        score /= sqrt(dim);
        if (w->shape.softcap > 0)
            score = (double)w->shape.softcap * tanh(score / (double)w->shape.softcap);
        double weight = exp(score);
        sum += weight;
        for (uint32_t d = 0; d < dim; d++)
            out[d] += weight * v[d];
    }
    for (uint32_t d = 0; d < dim; d++)
        out[d] /= sum;
    mem_free(q);
    mem_free(row);
}

static void test_reference_when_compared_with_the_formula_is_equal(void **state)
{
    static const struct shape plain[] = {{{6, 2, 20, 3, 0}, 0, false, 0, 0},
                                         {{3, 2, 16, 4, 2}, 0, false, 7, 0},
                                         {{2, 1, 12, 2, 0}, 0, false, 0, 0.75f}};
    (void)state;
    for (int i = 0; i < 3; i++) {
        struct world *w = open_world("ref", 1, &plain[i], 1, 60, 3);
        float *got = run_whole(w);
        uint32_t dim = plain[i].heads.head_dim, heads = plain[i].heads.q_heads;
        for (uint32_t p = 0; p < 60; p += 7) {
            for (uint32_t h = 0; h < heads; h++) {
                double expected[20];
                naive_row(w, 0, p, h, expected);
                for (uint32_t d = 0; d < dim; d++)
                    assert_true(fabs(got[(p * heads + h) * dim + d] - expected[d]) < 1e-5);
            }
        }
        mem_free(got);
        close_world(w);
    }
}

static void check_bits(const char *name, const struct shape *shape, uint32_t tokens)
{
    struct world *w = open_world(name, 1, shape, 3, tokens, 0);
    float *expected = run_whole(w);
    size_t bytes = result_floats(w) * sizeof(*expected);
    close_world(w);
    static const uint32_t chunks[][2] = {{16, 3}, {1, 0}, {37, 20}, {100, 1}};
    for (unsigned threads = 1; threads <= 3; threads++) {
        for (size_t i = 0; i < sizeof(chunks) / sizeof(chunks[0]); i++) {
            if (tokens > 400 && chunks[i][0] == 1)
                continue;
            w = open_world(name, threads, shape, 3, tokens, 5 * threads + i);
            float *got = run_chunked(w, chunks[i][0], chunks[i][1]);
            assert_memory_equal(got, expected, bytes);
            mem_free(got);
            close_world(w);
        }
    }
    mem_free(expected);
}

static void test_attention_when_chunks_batch_or_threads_change_keeps_the_bits(void **state)
{
    (void)state;
    for (size_t i = 0; i < SHAPES; i++)
        check_bits("cpu", &shapes[i], 150);
    check_bits("ref", &shapes[0], 60);
    kv_dtype = KV_INT8;
    for (size_t i = 0; i < SHAPES; i += 3) /* odd ends of a tile, a window, softcap */
        check_bits("cpu", &shapes[i], 70);
    check_bits("ref", &shapes[12], 60);
    kv_dtype = KV_BFLOAT16;
}

static void test_attention_when_context_spans_partitions_keeps_the_bits(void **state)
{
    static const struct shape wide = {{3, 1, 16, 3, 0}, 16, false, 0, 0};
    static const struct shape window = {{2, 1, 16, 2, 0}, 16, false, 700, 0};
    (void)state;
    check_bits("cpu", &wide, 1650);
    check_bits("cpu", &window, 1650);
    kv_dtype = KV_INT8;
    check_bits("cpu", &window, 1200);
    kv_dtype = KV_BFLOAT16;
}

/* One sequence, one row: 3 threads split its context, 1 does not. */
static void check_split(uint32_t context)
{
    static const struct shape shape = {{6, 2, 64, 3, 0}, 64, false, 0, 0};
    float *got[2];
    size_t bytes = 0;
    for (int i = 0; i < 2; i++) {
        struct world *w = open_world("cpu", i == 0 ? 1 : 3, &shape, 1, context + 10, 0);
        got[i] = mem_calloc(result_floats(w), sizeof(float));
        bytes = result_floats(w) * sizeof(float);
        run_step(w, &(struct piece){0, 0, context}, 1, got[i]);
        for (uint32_t p = context; p < context + 10; p++)
            run_step(w, &(struct piece){0, p, 1}, 1, got[i]);
        close_world(w);
    }
    assert_memory_equal(got[0], got[1], bytes);
    mem_free(got[0]);
    mem_free(got[1]);
}

static void test_attention_when_decode_is_split_equals_unsplit(void **state)
{
    (void)state;
    check_split(2090);
    kv_dtype = KV_INT8;
    check_split(1100);
    kv_dtype = KV_BFLOAT16;
}

static void test_copy_blocks_when_part_of_a_block_copies_those_slots_only(void **state)
{
    static const char *const names[] = {"ref", "cpu"};
    static const struct shape shape = {{4, 2, 24, 2, 0}, 24, false, 0, 0};
    (void)state;
    for (int i = 0; i < 4; i++) {
        kv_dtype = i < 2 ? KV_BFLOAT16 : KV_INT8;
        struct world *w = open_world(names[i % 2], 1, &shape, 2, 32, 0);
        float *first = run_whole(w);
        /* Sequence 1 takes over slots 0..9 of sequence 0's second block, then goes on itself. */
        uint32_t from = w->table[1], to = w->table[w->table_stride + 1];
        w->table[w->table_stride] = w->table[0];
        op_copy_blocks(w->b, w->kv, from, to, 10);
        float *second = mem_calloc(result_floats(w), sizeof(*second));
        size_t row = result_floats(w) / 64;
        run_step(w, &(struct piece){0, 26, 6}, 1, second);
        assert_memory_equal(second + 26 * row, first + 26 * row, 6 * row * sizeof(*first));
        /* Position 26 of sequence 1 over sequence 0's tokens 0..25. */
        run_step(w, &(struct piece){1, 26, 1}, 1, second);
        struct world *fresh = open_world(names[i % 2], 1, &shape, 2, 32, 0);
        run_step(fresh, &(struct piece){0, 0, 26}, 1, first);
        memcpy(fresh->table + fresh->table_stride, fresh->table, 2 * sizeof(*fresh->table));
        run_step(fresh, &(struct piece){1, 26, 1}, 1, first);
        assert_memory_equal(second + (32 + 26) * row, first + (32 + 26) * row,
                            row * sizeof(*first));
        mem_free(first);
        mem_free(second);
        close_world(w);
        close_world(fresh);
    }
    kv_dtype = KV_BFLOAT16;
}

static void test_block_read_when_written_elsewhere_gives_the_same_bits(void **state)
{
    static const char *const names[] = {"ref", "cpu"};
    static const struct shape shape = {{4, 2, 24, 2, 0}, 24, false, 0, 0};
    (void)state;
    for (int i = 0; i < 4; i++) {
        kv_dtype = i < 2 ? KV_BFLOAT16 : KV_INT8;
        struct world *w = open_world(names[i % 2], 1, &shape, 2, 32, 0);
        size_t bytes = op_kv_block_bytes(w->b, w->kv->layers, w->kv->kv_heads, w->kv->head_dim);
        unsigned char *away = mem_zalloc(bytes + 1);
        float *first = run_whole(w), *again = mem_calloc(result_floats(w), sizeof(*again));
        uint32_t old = w->table[0], other = w->table[w->table_stride + 1];
        size_t row = result_floats(w) / 64;
        away[bytes] = 0xa5;
        op_kv_block_read(w->b, w->kv, old, away);
        assert_int_equal(away[bytes], 0xa5);
        w->table[0] = other; /* sequence 0 goes on with its first block in another place */
        op_kv_block_write(w->b, w->kv, other, away);
        memset(away, 0xff, bytes);
        op_kv_block_write(w->b, w->kv, old, away);
        run_step(w, &(struct piece){0, 26, 6}, 1, again);
        assert_memory_equal(again + 26 * row, first + 26 * row, 6 * row * sizeof(*first));
        mem_free(away);
        mem_free(first);
        mem_free(again);
        close_world(w);
    }
    kv_dtype = KV_BFLOAT16;
}

static void test_attention_when_another_layer_is_written_keeps_its_own(void **state)
{
    static const char *const names[] = {"ref", "cpu"};
    static const struct shape shape = {{4, 2, 24, 2, 0}, 24, false, 0, 0};
    (void)state;
    for (int i = 0; i < 4; i++) {
        kv_dtype = i < 2 ? KV_BFLOAT16 : KV_INT8;
        struct world *w = open_world(names[i % 2], 1, &shape, 1, 32, 0);
        float *whole[2], *again = mem_calloc(result_floats(w), sizeof(*again));
        size_t row = result_floats(w) / 32;
        for (uint32_t layer = 0; layer < 2; layer++) {
            w->layer = layer;
            w->seed = layer; /* other values */
            whole[layer] = run_whole(w);
        }
        for (uint32_t layer = 0; layer < 2; layer++) {
            w->layer = layer;
            w->seed = layer;
            run_step(w, &(struct piece){0, 26, 6}, 1, again);
            assert_memory_equal(again + 26 * row, whole[layer] + 26 * row,
                                6 * row * sizeof(*again));
        }
        mem_free(whole[0]);
        mem_free(whole[1]);
        mem_free(again);
        close_world(w);
    }
    kv_dtype = KV_BFLOAT16;
}

static void test_block_bytes_when_asked_counts_all_layers(void **state)
{
    struct backend *r = open_backend("ref", 1), *c = open_backend("cpu", 1);
    (void)state;
    assert_int_equal(op_kv_block_bytes(r, 30, 3, 64), 30 * 2 * 3 * 16 * 64 * 4);
    assert_int_equal(op_kv_block_bytes(c, 30, 3, 64), 30 * 2 * 3 * 16 * 64 * 2);
    assert_int_equal(op_kv_block_bytes(c, 1, 1, 8), 16 * (8 + 16) * 2); /* V is padded */
    kv_dtype = KV_INT8;
    struct backend *plain[2] = {r, c};
    r = open_backend("ref", 1);
    c = open_backend("cpu", 1);
    assert_string_not_equal(r->kv_format, plain[0]->kv_format); /* tiers go by it */
    assert_string_not_equal(c->kv_format, plain[1]->kv_format);
    backend_close(plain[0]);
    backend_close(plain[1]);
    assert_int_equal(op_kv_block_bytes(r, 30, 3, 64), 30 * 2 * 3 * 16 * 64 * 4); /* as f32 */
    assert_int_equal(op_kv_block_bytes(c, 30, 3, 64), 30 * 2 * 3 * 16 * (64 + 4));
    assert_int_equal(op_kv_block_bytes(c, 1, 1, 8), 16 * (8 + 16 + 2 * 4));
    backend_close(r);
    backend_close(c);
    kv_dtype = KV_BFLOAT16;
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reference_when_compared_with_the_formula_is_equal),
        cmocka_unit_test(test_attention_when_shapes_vary_is_near_the_reference),
        cmocka_unit_test(test_int8_when_shapes_vary_is_near_the_reference),
        cmocka_unit_test(test_attention_when_scores_rise_is_near_the_reference),
        cmocka_unit_test(test_int8_when_a_row_is_kept_reads_as_scale_times_integer),
        cmocka_unit_test(test_attention_when_chunks_batch_or_threads_change_keeps_the_bits),
        cmocka_unit_test(test_attention_when_context_spans_partitions_keeps_the_bits),
        cmocka_unit_test(test_attention_when_decode_is_split_equals_unsplit),
        cmocka_unit_test(test_copy_blocks_when_part_of_a_block_copies_those_slots_only),
        cmocka_unit_test(test_block_read_when_written_elsewhere_gives_the_same_bits),
        cmocka_unit_test(test_attention_when_another_layer_is_written_keeps_its_own),
        cmocka_unit_test(test_block_bytes_when_asked_counts_all_layers),
    };
    if (!choose_family(argc, argv))
        return FAMILY_SKIPPED;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
