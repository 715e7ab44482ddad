/* bench_model.c - the model path of a worker without HTTP: prefill by length, decode by batch and
 * context, as CSV, with the share of what the machine was measured to reach.
 *
 *   bench_model MODEL [threads 2] [family of the cpu backend: auto] [runs 3] [commit: unknown]
 *               [all | quick: prefill of 512 and decode of one sequence only | deep: decode of one
 *                and of four sequences at 4,096 tokens only] [KV: bfloat16 | int8]
 *
 * tokens_per_s, gops and gb_s are of the median run. Limits, the better of before and after the
 * row, since machines that others share are not the same for a minute: read_gb_s, all threads
 * reading 512 MiB of huge pages; layer_gops, head_gops, float_gops, op_matmul of many rows with one
 * matrix of the layers, with the head, with a float one. `share` is what the step would take at
 * these limits beside what it takes: layers, head and attention wait for each other, and each takes
 * what reading its bytes takes or its products, whichever is more. Attention multiplies floats.
 * Decode steps have random contexts of equal length. */
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/base/clock.h"
#include "proto/base/mem.h"
#include "proto/base/rng.h"
#include "worker/engine/rank_model.h"

#define CHUNK 512
#define BATCH_MAX 32
#define CONTEXT_MAX 6144
#define BLOCKS_MAX 6144
#define TABLE (CONTEXT_MAX / KV_BLOCK_TOKENS)
#define RUNS_MAX 99
#define HEAD_ROWS 64
#define FLOATS_N 512
#define FLOATS_K 256
#define READ_BYTES ((size_t)512 << 20)

struct bench {
    struct rank_model *model;
    int runs;
    uint64_t *words; /* READ_BYTES */
    struct weight *floats;
    double read_gb_s, layer_gops, head_gops, float_gops; /* limits */
    uint32_t ids[CHUNK], position[CHUNK], row_first[BATCH_MAX + 1], out_row[BATCH_MAX];
    uint32_t table[BATCH_MAX * TABLE];
    float *logits;
};

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double seconds_since(uint64_t start)
{
    return 1e-9 * (double)(clock_ns() - start);
}

static double median(double *values, int count)
{
    qsort(values, (size_t)count, sizeof(values[0]), by_value);
    return values[count / 2];
}

/* --- limits ---------------------------------------------------------------------------------- */

struct reader {
    pthread_t thread;
    const uint64_t *words;
    size_t count;
    uint64_t sum;
};

static void *read_words(void *argument)
{
    struct reader *reader = argument;
    uint64_t sum[8] = {0};
    for (size_t i = 0; i + 8 <= reader->count; i += 8) {
        for (int k = 0; k < 8; k++)
            sum[k] += reader->words[i + (size_t)k];
    }
    for (int k = 0; k < 8; k++)
        reader->sum += sum[k];
    return NULL;
}

/* `words`: READ_BYTES. */
static double measure_reading(unsigned threads, const uint64_t *words)
{
    struct reader readers[64];
    double best = 0;
    threads = threads < 64 ? threads : 64;
    for (int run = 0; run < 3; run++) {
        uint64_t start = clock_ns();
        for (unsigned i = 0; i < threads; i++) {
            size_t count = READ_BYTES / sizeof(*words) / threads;
            readers[i] = (struct reader){.words = words + i * count, .count = count};
            if (pthread_create(&readers[i].thread, NULL, read_words, &readers[i]) != 0)
                abort();
        }
        for (unsigned i = 0; i < threads; i++)
            (void)pthread_join(readers[i].thread, NULL);
        double gb_s = 1e-9 * (double)READ_BYTES / seconds_since(start);
        best = gb_s > best ? gb_s : best;
    }
    return best;
}

/* Operations per second of x * w, again and again. */
static double measure_matmul(struct backend *backend, struct weight *w, uint32_t rows, int runs)
{
    uint32_t k = op_weight_columns(w), n = op_weight_rows(w);
    float *x = mem_calloc((size_t)rows * k, sizeof(*x)), *y = mem_calloc((size_t)rows * n, 4);
    struct tensor tx = tensor_of(x, rows, k), ty = tensor_of(y, rows, n);
    double best = 0;
    for (size_t i = 0; i < (size_t)rows * k; i++)
        x[i] = (float)rng_uniform(3, i);
    for (int run = 0; run < runs; run++) {
        uint64_t start = clock_ns();
        op_matmul(backend, &ty, &tx, w, false);
        best = fmax(best, 2e-9 * rows * (double)k * n / seconds_since(start));
    }
    mem_free(x);
    mem_free(y);
    return best;
}

static struct weight *float_matrix(struct backend *backend)
{
    float *values = mem_calloc((size_t)FLOATS_N * FLOATS_K, sizeof(*values));
    struct weight_part part = {.data = values,
                               .row_bytes = FLOATS_K * sizeof(*values),
                               .dtype = DTYPE_F32,
                               .rows = FLOATS_N};
    struct weight *weight;
    struct errmsg err;
    for (size_t i = 0; i < (size_t)FLOATS_N * FLOATS_K; i++)
        values[i] = (float)rng_uniform(5, i);
    if (op_weight_new(backend, WEIGHT_MATMUL, &part, 1, FLOATS_K, &weight, &err) < 0)
        abort();
    mem_free(values);
    return weight;
}

static void forget_limits(struct bench *bench)
{
    bench->read_gb_s = bench->layer_gops = bench->head_gops = bench->float_gops = 0;
}

static void measure_limits(struct bench *bench)
{
    struct backend *b = bench->model->backend;
    const struct weights *weights = bench->model->weights;
    bench->read_gb_s = fmax(bench->read_gb_s, measure_reading(b->threads, bench->words));
    bench->layer_gops =
        fmax(bench->layer_gops, measure_matmul(b, weights->layers[0].gate_up, CHUNK, 20));
    bench->head_gops = fmax(bench->head_gops, measure_matmul(b, weights->head, HEAD_ROWS, 4));
    bench->float_gops = fmax(bench->float_gops, measure_matmul(b, bench->floats, CHUNK, 20));
}

/* --- steps ----------------------------------------------------------------------------------- */

static void forward(struct bench *bench, uint32_t sequences, uint32_t rows, uint32_t first,
                    bool wanted)
{
    uint32_t total = sequences * rows;
    for (uint32_t i = 0; i < total; i++) {
        bench->ids[i] =
            (uint32_t)(rng_uniform(7, first * 977u + i) * bench->model->config.vocab_size);
        bench->position[i] = first + i % rows;
    }
    for (uint32_t s = 0; s <= sequences; s++)
        bench->row_first[s] = s * rows;
    for (uint32_t s = 0; s < sequences; s++)
        bench->out_row[s] = s * rows + rows - 1;
    const struct step step = {.rows = total,
                              .sequences = sequences,
                              .ids = bench->ids,
                              .position = bench->position,
                              .row_first = bench->row_first,
                              .table = bench->table,
                              .table_stride = TABLE,
                              .out_row = bench->out_row,
                              .outputs = wanted ? sequences : 0};
    if (decoder_forward(bench->model->decoder, &step, bench->logits) < 0)
        abort();
}

static void prefill(struct bench *bench, uint32_t tokens)
{
    for (uint32_t first = 0; first < tokens; first += CHUNK) {
        uint32_t rows = tokens - first < CHUNK ? tokens - first : CHUNK;
        forward(bench, 1, rows, first, first + rows == tokens);
    }
}

/* Multiply-adds of one token in the layers' matmuls. */
static double layer_products(const struct rank_model *model)
{
    double sum = 0;
    for (uint32_t i = 0; i < model->config.layers; i++) {
        const struct layer_weights *l = &model->weights->layers[i];
        const struct weight *all[] = {l->qkv, l->output, l->gate_up, l->down};
        for (int k = 0; k < 4; k++)
            sum += (double)op_weight_rows(all[k]) * op_weight_columns(all[k]);
    }
    return sum;
}

/* Of one token in attention to `seen` tokens. */
static double attention_products(const struct rank_model *model, double seen)
{
    const struct model_config *config = &model->config;
    return 2.0 * config->layers * config->q_heads * config->head_dim * seen;
}

static double head_products(const struct rank_model *model)
{
    const struct weight *head = model->weights->head;
    return (double)op_weight_rows(head) * op_weight_columns(head);
}

/* Seconds of a part of a step at its limits. */
static double at_limits(const struct bench *bench, double bytes, double products, double gops)
{
    return fmax(1e-9 * bytes / bench->read_gb_s, 2e-9 * products / gops);
}

static void print_row(const struct bench *bench, const char *what, uint32_t batch, uint32_t tokens,
                      double rows, double s, double products, double bytes, double limit)
{
    printf("%s,%u,%u,%.1f,%.2f,%.1f,%.2f,%.1f,%.0f,%.0f,%.0f,%.2f\n", what, batch, tokens, rows / s,
           s * 1e3, 2e-9 * products / s, 1e-9 * bytes / s, bench->read_gb_s, bench->layer_gops,
           bench->head_gops, bench->float_gops, limit / s);
    (void)fflush(stdout);
}

static void measure_prefill(struct bench *bench, uint32_t tokens)
{
    double seconds[RUNS_MAX];
    forget_limits(bench);
    measure_limits(bench);
    for (int run = 0; run < bench->runs; run++) {
        uint64_t start = clock_ns();
        prefill(bench, tokens);
        seconds[run] = seconds_since(start);
    }
    measure_limits(bench);
    double s = median(seconds, bench->runs);
    double layers = tokens * layer_products(bench->model);
    double attention = tokens * attention_products(bench->model, tokens / 2.0);
    double limit = at_limits(bench, 0, layers, bench->layer_gops) +
                   at_limits(bench, 0, attention, bench->float_gops);
    print_row(bench, "prefill", 1, tokens, tokens, s, layers + attention, 0, limit);
}

static void measure_decode(struct bench *bench, uint32_t batch, uint32_t context)
{
    double seconds[RUNS_MAX * 8];
    int steps = bench->runs * 8;
    forget_limits(bench);
    measure_limits(bench);
    for (int run = -2; run < steps; run++) {
        uint64_t start = clock_ns();
        forward(bench, batch, 1, context - 1, true);
        if (run >= 0)
            seconds[run] = seconds_since(start);
    }
    measure_limits(bench);
    double s = median(seconds, steps);
    double kv =
        batch * (double)context * (double)rank_model_block_bytes(bench->model) / KV_BLOCK_TOKENS;
    double head_bytes = (double)op_weight_bytes(bench->model->weights->head);
    double layer_bytes = (double)bench->model->weights->bytes - head_bytes;
    double layers = batch * layer_products(bench->model);
    double head = batch * head_products(bench->model);
    double attention = batch * attention_products(bench->model, context);
    double limit = at_limits(bench, layer_bytes, layers, bench->layer_gops) +
                   at_limits(bench, head_bytes, head, bench->head_gops) +
                   at_limits(bench, kv, attention, bench->float_gops);
    print_row(bench, "decode", batch, context, batch, s, layers + head + attention,
              layer_bytes + head_bytes + kv, limit);
}

/* --- main ------------------------------------------------------------------------------------ */

static void print_machine(const struct bench *bench, const char *commit)
{
    char line[256], name[256] = "unknown";
    FILE *info = fopen("/proc/cpuinfo", "re");
    while (info != NULL && fgets(line, sizeof(line), info) != NULL) {
        if (sscanf(line, "model name : %255[^\n]", name) == 1)
            break;
    }
    if (info != NULL)
        (void)fclose(info);
    printf("# cpu %s, family %s, KV %s, threads %u, commit %s, medians of %d runs\n", name,
           bench->model->backend->isa, kv_dtype_name(bench->model->backend->kv_dtype),
           bench->model->backend->threads, commit, bench->runs);
    printf("# KV bytes of a token %zu, tokens in 1 GiB %zu\n",
           rank_model_block_bytes(bench->model) / KV_BLOCK_TOKENS,
           ((size_t)1 << 30) / rank_model_block_bytes(bench->model) * KV_BLOCK_TOKENS);
    printf("what,batch,tokens,tokens_per_s,ms,gops,gb_s,read_gb_s,layer_gops,head_gops,float_gops,"
           "share\n");
    (void)fflush(stdout);
}

static void open_model(struct bench *bench, int argc, char **argv)
{
    const struct rank_model_settings settings = {
        .path = argv[1],
        .ranks = 1,
        .backend = {"cpu", argc > 2 ? (unsigned)atoi(argv[2]) : 2, argc > 3 ? argv[3] : NULL,
                    argc > 7 && strcmp(argv[7], "int8") == 0 ? KV_INT8 : KV_BFLOAT16},
        .whole_windows = true}; /* one table serves all layers */
    const struct rank_limits limits = {.rows_max = CHUNK,
                                       .sequences_max = BATCH_MAX,
                                       .context_tokens_max = CONTEXT_MAX,
                                       .kv_blocks = BLOCKS_MAX};
    struct errmsg err;
    if (rank_model_open(&settings, &bench->model, &err) < 0 ||
        rank_model_load(bench->model, &limits, NULL, &err) < 0) {
        fprintf(stderr, "%s\n", err.text);
        exit(1);
    }
    bench->logits = mem_alloc((size_t)BATCH_MAX * bench->model->config.vocab_size * sizeof(float));
}

static void measure_decodes(struct bench *bench, uint32_t context, int batches_count)
{
    static const uint32_t batches[] = {1, 4, 16, 32};
    uint32_t blocks = context / KV_BLOCK_TOKENS;
    for (int b = 0; b < batches_count && batches[b] * blocks <= BLOCKS_MAX; b++) {
        for (uint32_t s = 0; s < batches[b]; s++) { /* every sequence its own memory */
            for (uint32_t i = 0; i < blocks; i++) {
                bench->table[s * TABLE + i] = s * blocks + i;
                if (s > 0)
                    decoder_copy_block(bench->model->decoder, i, s * blocks + i, KV_BLOCK_TOKENS);
            }
        }
        measure_decode(bench, batches[b], context);
    }
}

int main(int argc, char **argv)
{
    static struct bench bench;
    static const uint32_t lengths[] = {512, 2048, 6000};
    bool quick = argc > 6 && strcmp(argv[6], "quick") == 0;
    bool deep = argc > 6 && strcmp(argv[6], "deep") == 0;
    if (argc < 2 || (argc > 2 && atoi(argv[2]) < 1)) {
        fprintf(stderr, "usage: bench_model MODEL [threads] [family] [runs] [commit] "
                        "[all|quick|deep] [bfloat16|int8]\n");
        return 2;
    }
    open_model(&bench, argc, argv);
    bench.runs = argc > 4 ? atoi(argv[4]) : 3;
    bench.runs = bench.runs < 1 ? 1 : bench.runs > RUNS_MAX ? RUNS_MAX : bench.runs;
    void *words;
    if (mem_map(READ_BYTES, &words) < 0)
        return 1;
    memset(words, 1, READ_BYTES);
    bench.words = words;
    bench.floats = float_matrix(bench.model->backend);
    print_machine(&bench, argc > 5 ? argv[5] : "unknown");
    for (uint32_t i = 0; i < TABLE; i++)
        bench.table[i] = i;
    if (deep) {
        prefill(&bench, 4096); /* what is read is a prompt's */
        measure_decodes(&bench, 4096, 2);
    } else {
        for (int i = 0; i < (quick ? 1 : 3); i++)
            measure_prefill(&bench, lengths[i]);
        measure_decodes(&bench, 128, quick ? 1 : 4);
        if (!quick) {
            measure_decodes(&bench, 1024, 4);
            measure_decodes(&bench, 4096, 4);
        }
    }
    op_weight_free(bench.model->backend, bench.floats);
    rank_model_close(bench.model);
    mem_free(bench.logits);
    mem_unmap(words, READ_BYTES);
    return 0;
}
