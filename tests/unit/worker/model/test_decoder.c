/* test_decoder.c - one layer worked out by a second, naive implementation; batching, chunking and
 * block tables do not change a bit; no output means no head. */
#include <cmocka.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/backend.h"
#include "tests/unit/proto/files/gguf_writer.h"
#include "worker/model/decoder.h"

#define BLOCKS 8u
#define ROWS_MAX 48u

static const struct llama_sizes sizes = {
    .layers = 2, .hidden = 16, .ffn = 24, .q_heads = 4, .kv_heads = 2, .vocab_size = 10};

/* A rank of one, with everything it needs. */
struct model {
    void *file;
    struct gguf *gguf;
    struct model_source *source;
    struct model_config config;
    struct shard shard;
    struct backend *backend;
    struct weights *weights;
    struct comm *comm;
    struct decoder *decoder;
};

static void model_open_sized(struct model *m, struct gguf_writer *w)
{
    struct errmsg err = {""};
    size_t bytes = 0;
    const struct backend_settings backend = {.name = "ref", .threads = 1};
    m->file = writer_finish(w, &bytes);
    writer_done(w);
    if (gguf_open_memory(m->file, bytes, &m->gguf, &err) < 0)
        fail_msg("%s", err.text);
    m->source = model_source_of_gguf(m->gguf);
    if (model_config_read(m->source, &m->config, &err) < 0 ||
        shard_compute(&m->config, 0, 1, &m->shard, &err) < 0 ||
        backend_open(&backend, &m->backend, &err) < 0)
        fail_msg("%s", err.text);
    const struct weights_slice slice = shard_slice(&m->shard);
    if (weights_load(m->source, &m->config, &slice, m->backend, &m->weights, &err) < 0)
        fail_msg("%s", err.text);
    m->comm = comm_single_new();
    const struct decoder_settings settings = {.config = &m->config,
                                              .shard = &m->shard,
                                              .weights = m->weights,
                                              .backend = m->backend,
                                              .comm = m->comm,
                                              .rows_max = ROWS_MAX,
                                              .outputs_max = ROWS_MAX,
                                              .positions_max = 64,
                                              .kv_blocks = BLOCKS};
    if (decoder_new(&settings, &m->decoder, &err) < 0)
        fail_msg("%s", err.text);
}

static void model_open(struct model *m)
{
    struct gguf_writer w;
    writer_init(&w);
    write_llama_keys(&w, &sizes);
    write_llama_tensors(&w, &sizes);
    model_open_sized(m, &w);
}

static void model_close(struct model *m)
{
    decoder_free(m->decoder);
    comm_free(m->comm);
    weights_free(m->weights, &m->config, m->backend);
    backend_close(m->backend);
    model_source_close(m->source);
    free(m->file);
}

/* One sequence's rows from `first` on; logits of all of them. */
static void forward(struct model *m, const uint32_t *ids, uint32_t first, uint32_t rows,
                    const uint32_t *table, float *ret_logits)
{
    uint32_t position[ROWS_MAX], out_row[ROWS_MAX];
    const uint32_t row_first[2] = {0, rows};
    for (uint32_t i = 0; i < rows; i++) {
        position[i] = first + i;
        out_row[i] = i;
    }
    const struct step step = {.rows = rows,
                              .sequences = 1,
                              .ids = ids + first,
                              .position = position,
                              .row_first = row_first,
                              .table = table,
                              .table_stride = BLOCKS,
                              .out_row = out_row,
                              .outputs = rows};
    assert_int_equal(decoder_forward(m->decoder, &step, ret_logits), 0);
}

static const uint32_t rising[BLOCKS] = {0, 1, 2, 3, 4, 5, 6, 7};

/* --- the second implementation --------------------------------------------------------------- */

static const float *tensor_data(const struct model *m, const char *format, uint32_t layer)
{
    char name[64];
    (void)snprintf(name, sizeof(name), format, layer);
    const struct gguf_tensor *tensor = gguf_tensor(m->gguf, name);
    assert_non_null(tensor);
    return tensor->data;
}

static void naive_norm(const double *x, const float *w, double *y)
{
    double sum = 0;
    for (int i = 0; i < 16; i++)
        sum += x[i] * x[i];
    for (int i = 0; i < 16; i++)
        y[i] = x[i] / sqrt(sum / 16 + (double)1e-5f) * (double)w[i];
}

static void naive_matmul(const double *x, const float *w, int rows, int columns, double *y)
{
    for (int n = 0; n < rows; n++) {
        y[n] = 0;
        for (int k = 0; k < columns; k++)
            y[n] += x[k] * (double)w[n * columns + k];
    }
}

/* Pairs (2i, 2i + 1) of a head of 4: angles position and position / 100. */
static void naive_rope(double *head, double position)
{
    for (int i = 0; i < 2; i++) {
        double angle = position * pow(10000.0, -2.0 * i / 4), a = head[2 * i], b = head[2 * i + 1];
        head[2 * i] = a * cos(angle) - b * sin(angle);
        head[2 * i + 1] = a * sin(angle) + b * cos(angle);
    }
}

#define TOKENS 20

struct naive {
    double x[TOKENS][16], q[TOKENS][16], k[TOKENS][8], v[TOKENS][8];
};

static void naive_attend(const struct naive *n, int row, double *out)
{
    for (int head = 0; head < 4; head++) {
        double weight[TOKENS], sum = 0;
        int kv = head / 2; /* two query heads share a KV head */
        for (int t = 0; t <= row; t++) {
            weight[t] = 0;
            for (int i = 0; i < 4; i++)
                weight[t] += n->q[row][head * 4 + i] * n->k[t][kv * 4 + i] / 2; /* sqrt(4) */
            weight[t] = exp(weight[t]);
            sum += weight[t];
        }
        for (int i = 0; i < 4; i++) {
            out[head * 4 + i] = 0;
            for (int t = 0; t <= row; t++)
                out[head * 4 + i] += weight[t] / sum * n->v[t][kv * 4 + i];
        }
    }
}

static void naive_layer(const struct model *m, struct naive *n, uint32_t layer)
{
    double normed[16], part[16], gate[24], up[24], attended[16];
    for (int t = 0; t < TOKENS; t++) {
        naive_norm(n->x[t], tensor_data(m, "blk.%u.attn_norm.weight", layer), normed);
        naive_matmul(normed, tensor_data(m, "blk.%u.attn_q.weight", layer), 16, 16, n->q[t]);
        naive_matmul(normed, tensor_data(m, "blk.%u.attn_k.weight", layer), 8, 16, n->k[t]);
        naive_matmul(normed, tensor_data(m, "blk.%u.attn_v.weight", layer), 8, 16, n->v[t]);
        for (int head = 0; head < 4; head++)
            naive_rope(n->q[t] + head * 4, t);
        for (int head = 0; head < 2; head++)
            naive_rope(n->k[t] + head * 4, t);
    }
    for (int t = 0; t < TOKENS; t++) {
        naive_attend(n, t, attended);
        naive_matmul(attended, tensor_data(m, "blk.%u.attn_output.weight", layer), 16, 16, part);
        for (int i = 0; i < 16; i++)
            n->x[t][i] += part[i];
        naive_norm(n->x[t], tensor_data(m, "blk.%u.ffn_norm.weight", layer), normed);
        naive_matmul(normed, tensor_data(m, "blk.%u.ffn_gate.weight", layer), 24, 16, gate);
        naive_matmul(normed, tensor_data(m, "blk.%u.ffn_up.weight", layer), 24, 16, up);
        for (int i = 0; i < 24; i++)
            gate[i] = gate[i] / (1 + exp(-gate[i])) * up[i];
        naive_matmul(gate, tensor_data(m, "blk.%u.ffn_down.weight", layer), 16, 24, part);
        for (int i = 0; i < 16; i++)
            n->x[t][i] += part[i];
    }
}

static const uint32_t ids[TOKENS] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 0, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0};

static void test_logits_when_compared_with_a_naive_model_are_equal(void **state)
{
    struct model m;
    struct naive n;
    float logits[TOKENS][10];
    model_open(&m);
    forward(&m, ids, 0, TOKENS, rising, logits[0]);
    for (int t = 0; t < TOKENS; t++) {
        for (int i = 0; i < 16; i++)
            n.x[t][i] = (double)tensor_data(&m, "token_embd.weight", 0)[ids[t] * 16 + i];
    }
    naive_layer(&m, &n, 0);
    naive_layer(&m, &n, 1);
    for (int t = 0; t < TOKENS; t++) {
        double normed[16], expected[10];
        naive_norm(n.x[t], tensor_data(&m, "output_norm.weight", 0), normed);
        naive_matmul(normed, tensor_data(&m, "output.weight", 0), 10, 16, expected);
        for (int i = 0; i < 10; i++)
            assert_true(fabs((double)logits[t][i] - expected[i]) < 1e-4);
    }
    model_close(&m);
}

/* --- the same bits --------------------------------------------------------------------------- */

static void test_logits_when_blocks_lie_elsewhere_have_the_same_bits(void **state)
{
    static const uint32_t scattered[BLOCKS] = {6, 3, 1};
    struct model m;
    float a[TOKENS][10], b[TOKENS][10];
    model_open(&m);
    forward(&m, ids, 0, TOKENS, rising, a[0]);
    forward(&m, ids, 0, TOKENS, scattered, b[0]);
    assert_memory_equal(a, b, sizeof(a));
    model_close(&m);
}

static void test_logits_when_a_prompt_is_cut_have_the_same_bits(void **state)
{
    struct model m;
    float whole[TOKENS][10], cut[TOKENS][10];
    model_open(&m);
    forward(&m, ids, 0, TOKENS, rising, whole[0]);
    for (uint32_t first = 0, rows = 1; first < TOKENS; first += rows, rows = 5) {
        rows = rows > TOKENS - first ? TOKENS - first : rows;
        forward(&m, ids, first, rows, rising, cut[first]);
    }
    assert_memory_equal(whole, cut, sizeof(whole));
    model_close(&m);
}

static void test_logits_when_batched_with_another_sequence_have_the_same_bits(void **state)
{
    /* The last token of one sequence and a short prompt in one step. */
    static const uint32_t other[] = {3, 3, 5}, table[] = {0, 1, 4, 4};
    struct model m;
    float alone[TOKENS][10], batched[2][10], alone_other[3][10];
    model_open(&m);
    forward(&m, ids, 0, TOKENS, rising, alone[0]);
    forward(&m, other, 0, 3, rising, alone_other[0]);
    forward(&m, ids, 0, TOKENS, rising, alone[0]); /* the other sequence was written over it */
    const uint32_t step_ids[] = {ids[TOKENS - 1], 3, 3, 5}, position[] = {TOKENS - 1, 0, 1, 2};
    const uint32_t row_first[] = {0, 1, 4}, out_row[] = {0, 3};
    const struct step step = {.rows = 4,
                              .sequences = 2,
                              .ids = step_ids,
                              .position = position,
                              .row_first = row_first,
                              .table = table,
                              .table_stride = 2,
                              .out_row = out_row,
                              .outputs = 2};
    assert_int_equal(decoder_forward(m.decoder, &step, batched[0]), 0);
    assert_memory_equal(batched[0], alone[TOKENS - 1], sizeof(batched[0]));
    assert_memory_equal(batched[1], alone_other[2], sizeof(batched[1]));
    model_close(&m);
}

static void test_logits_when_a_block_was_copied_have_the_same_bits(void **state)
{
    static const uint32_t copied[BLOCKS] = {5, 1};
    struct model m;
    float expected[TOKENS][10], logits[10];
    model_open(&m);
    forward(&m, ids, 0, TOKENS, rising, expected[0]);
    decoder_copy_block(m.decoder, 0, 5, 16);
    forward(&m, ids, TOKENS - 1, 1, copied, logits);
    assert_memory_equal(logits, expected[TOKENS - 1], sizeof(logits));
    model_close(&m);
}

/* --- switches -------------------------------------------------------------------------------- */

static void test_outputs_when_none_are_asked_still_write_the_cache(void **state)
{
    struct model m;
    uint32_t position[TOKENS];
    const uint32_t row_first[] = {0, TOKENS - 1};
    float expected[TOKENS][10], logits[10];
    model_open(&m);
    forward(&m, ids, 0, TOKENS, rising, expected[0]);
    model_close(&m);
    model_open(&m); /* an empty cache */
    for (uint32_t i = 0; i < TOKENS; i++)
        position[i] = i;
    const struct step step = {.rows = TOKENS - 1,
                              .sequences = 1,
                              .ids = ids,
                              .position = position,
                              .row_first = row_first,
                              .table = rising,
                              .table_stride = BLOCKS};
    assert_int_equal(decoder_forward(m.decoder, &step, NULL), 0);
    forward(&m, ids, TOKENS - 1, 1, rising, logits);
    assert_memory_equal(logits, expected[TOKENS - 1], sizeof(logits));
    model_close(&m);
}

static void test_rope_when_scaled_linearly_or_by_divisors_is_the_same(void **state)
{
    const float twos[2] = {2, 2};
    struct model m;
    struct gguf_writer w;
    float by_scale[TOKENS][10], by_divisors[TOKENS][10], plain[TOKENS][10];
    writer_init(&w);
    write_llama_keys(&w, &sizes);
    write_f32(&w, "llama.rope.scaling.factor", 2.0f);
    write_text(&w, "llama.rope.scaling.type", "linear");
    write_llama_tensors(&w, &sizes);
    model_open_sized(&m, &w);
    forward(&m, ids, 0, TOKENS, rising, by_scale[0]);
    model_close(&m);
    writer_init(&w);
    write_llama_keys(&w, &sizes);
    write_tensor(&w, "rope_freqs.weight", 1, 2, twos);
    write_llama_tensors(&w, &sizes);
    model_open_sized(&m, &w);
    forward(&m, ids, 0, TOKENS, rising, by_divisors[0]);
    model_close(&m);
    model_open(&m);
    forward(&m, ids, 0, TOKENS, rising, plain[0]);
    model_close(&m);
    assert_memory_equal(by_scale, by_divisors, sizeof(by_scale));
    assert_memory_equal(by_scale[0], plain[0], sizeof(plain[0])); /* position 0 does not turn */
    assert_memory_not_equal(by_scale[9], plain[9], sizeof(plain[9]));
}

static void test_memory_when_made_is_what_the_shapes_say(void **state)
{
    struct model m;
    model_open(&m);
    /* floats: x, normed 48*16 each; wide 48*max(32, 48), narrow 48*max(16, 24), rows of both
     * rounded up to 16 and 16 apart; head_in 48*16; rope 64*4. */
    size_t floats = 2 * 48 * 16 + 48 * (48 + 16) + 48 * (32 + 16) + 48 * 16 + 64 * 4;
    assert_int_equal(decoder_activation_bytes(m.decoder), floats * sizeof(float));
    assert_true(m.weights->bytes > 0);
    model_close(&m);
}

/* Weights that are missing or of another shape are named. */
static void test_weights_when_of_another_shape_are_refused(void **state)
{
    struct errmsg err = {""};
    struct gguf_writer w;
    struct gguf *gguf = NULL;
    struct backend *backend = NULL;
    struct weights *weights = NULL;
    struct model_config config;
    struct llama_sizes wrong = sizes;
    const struct backend_settings settings = {.name = "ref", .threads = 1};
    size_t bytes = 0;
    wrong.ffn = 20;
    writer_init(&w);
    write_llama_keys(&w, &sizes);
    write_llama_tensors(&w, &wrong);
    void *file = writer_finish(&w, &bytes);
    writer_done(&w);
    assert_int_equal(gguf_open_memory(file, bytes, &gguf, &err), 0);
    struct model_source *source = model_source_of_gguf(gguf);
    assert_int_equal(model_config_read(source, &config, &err), 0);
    assert_int_equal(backend_open(&settings, &backend, &err), 0);
    const struct weights_slice slice = {
        .q_count = 4, .kv_count = 2, .ffn_count = 24, .vocab_count = 10};
    assert_true(weights_load(source, &config, &slice, backend, &weights, &err) < 0);
    assert_string_equal(err.text, "tensor 'blk.0.ffn_gate.weight' is 20 x 16 instead of 24 x 16");
    backend_close(backend);
    model_source_close(source);
    free(file);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_logits_when_compared_with_a_naive_model_are_equal),
        cmocka_unit_test(test_logits_when_blocks_lie_elsewhere_have_the_same_bits),
        cmocka_unit_test(test_logits_when_a_prompt_is_cut_have_the_same_bits),
        cmocka_unit_test(test_logits_when_batched_with_another_sequence_have_the_same_bits),
        cmocka_unit_test(test_logits_when_a_block_was_copied_have_the_same_bits),
        cmocka_unit_test(test_outputs_when_none_are_asked_still_write_the_cache),
        cmocka_unit_test(test_rope_when_scaled_linearly_or_by_divisors_is_the_same),
        cmocka_unit_test(test_memory_when_made_is_what_the_shapes_say),
        cmocka_unit_test(test_weights_when_of_another_shape_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
