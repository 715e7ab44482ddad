/* bench_attention.c - op_attention at the shape of SmolLM2-135M (9 query heads, 3 KV, 64 dims, 30
 * layers): decode at several contexts and batches, prefill of a chunk at several depths. Each pass
 * takes the next layer, as steps do: KV that was read 30 layers ago is not in a cache any more.
 *
 *   bench_attention [threads 2] [seconds per line 0.5] [family of the cpu backend: auto]
 *                   [sequences rows depth: this line only] [KV: bfloat16 | int8]
 *
 * Checks the answer against the reference first, then prints CSV. For comparison, llama.cpp on
 * 2 cores of Zen3 spends 29 ms of a decode step at context 4096 here: ~970 us per layer. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "kernels/backend.h"
#include "proto/base/clock.h"
#include "proto/base/mem.h"
#include "proto/base/rng.h"

#define SEQUENCES_MAX 16
#define LAYERS 30
#define CONTEXT_MAX 4608
#define CHUNK_MAX 512
#define BLOCKS (CONTEXT_MAX / KV_BLOCK_TOKENS)
#define PASSES_MAX 4096

static const struct heads heads = {.q_heads = 9, .kv_heads = 3, .head_dim = 64, .group = 3};
#define Q_COLUMNS (9 * 64)
#define COLUMNS (15 * 64)

struct bench {
    struct backend *b;
    struct kv_pool *kv;
    float *qkv, *out, *cos_sin;
    uint32_t *table, *position, *row_first;
};

static void open_bench(struct bench *bench, const char *name, unsigned threads, const char *isa,
                       enum kv_dtype kv_dtype)
{
    const struct backend_settings settings = {name, threads, isa, kv_dtype};
    struct errmsg err;
    if (backend_open(&settings, &bench->b, &err) < 0 ||
        op_kv_pool_new(bench->b, SEQUENCES_MAX * BLOCKS, LAYERS, 3, 64, &bench->kv, &err) < 0) {
        fprintf(stderr, "%s\n", err.text);
        exit(1);
    }
    bench->qkv = mem_calloc(CHUNK_MAX * COLUMNS, sizeof(float));
    bench->out = mem_calloc(CHUNK_MAX * Q_COLUMNS, sizeof(float));
    bench->cos_sin = mem_calloc(CONTEXT_MAX * 64, sizeof(float));
    bench->table = mem_calloc(SEQUENCES_MAX * BLOCKS, sizeof(uint32_t));
    bench->position = mem_calloc(CHUNK_MAX, sizeof(uint32_t));
    bench->row_first = mem_calloc(SEQUENCES_MAX + 1, sizeof(uint32_t));
    for (uint32_t i = 0; i < SEQUENCES_MAX * BLOCKS; i++)
        bench->table[i] = i % SEQUENCES_MAX * BLOCKS + i / SEQUENCES_MAX; /* scattered */
    for (size_t i = 0; i < CONTEXT_MAX * 32; i++)
        bench->cos_sin[2 * i] = 1; /* no rotation */
}

static void close_bench(struct bench *bench)
{
    op_kv_pool_free(bench->b, bench->kv);
    backend_close(bench->b);
    mem_free(bench->qkv);
    mem_free(bench->out);
    mem_free(bench->cos_sin);
    mem_free(bench->table);
    mem_free(bench->position);
    mem_free(bench->row_first);
}

/* `sequences` with `rows` rows each, the first of them at position `depth`. */
static struct step make_step(struct bench *bench, uint32_t sequences, uint32_t rows, uint32_t depth)
{
    for (uint32_t s = 0; s <= sequences; s++)
        bench->row_first[s] = s * rows;
    for (uint32_t i = 0; i < sequences * rows; i++)
        bench->position[i] = depth + i % rows;
    return (struct step){.rows = sequences * rows,
                         .sequences = sequences,
                         .position = bench->position,
                         .row_first = bench->row_first,
                         .table = bench->table,
                         .table_stride = BLOCKS};
}

static void fill(struct bench *bench, uint32_t sequences, uint32_t tokens)
{
    const struct rope rope = {bench->cos_sin, CONTEXT_MAX, 64, false};
    for (uint32_t s = 0; s < sequences; s++) {
        for (uint32_t first = 0; first < tokens; first += CHUNK_MAX) {
            uint32_t rows = tokens - first < CHUNK_MAX ? tokens - first : CHUNK_MAX;
            struct step step = make_step(bench, 1, rows, first);
            struct tensor qkv = tensor_of(bench->qkv, rows, COLUMNS);
            step.table += s * BLOCKS;
            for (size_t i = 0; i < (size_t)rows * COLUMNS; i++)
                bench->qkv[i] = (float)(rng_uniform(s, first * 1000 + i) - 0.5) * 3;
            for (uint32_t layer = 0; layer < LAYERS; layer++)
                op_rope(bench->b, &qkv, &heads, &rope, bench->kv, layer, &step);
        }
    }
}

static void run(struct bench *bench, const struct step *step, uint32_t layer)
{
    struct tensor qkv = tensor_of(bench->qkv, step->rows, COLUMNS);
    struct tensor out = tensor_of(bench->out, step->rows, Q_COLUMNS);
    const struct attention_rule rule = {.scale = 0.125f};
    op_attention(bench->b, &out, &qkv, &heads, bench->kv, layer, step, &rule);
}

static void check(unsigned threads, const char *isa, enum kv_dtype kv_dtype)
{
    struct bench cpu = {0}, ref = {0};
    open_bench(&cpu, "cpu", threads, isa, kv_dtype);
    open_bench(&ref, "ref", 1, NULL, kv_dtype);
    fill(&cpu, 2, 700);
    fill(&ref, 2, 700);
    struct step a = make_step(&cpu, 2, 50, 650), b = make_step(&ref, 2, 50, 650);
    run(&cpu, &a, 0);
    run(&ref, &b, 0);
    double errors = 0, values = 0;
    for (uint32_t i = 0; i < 100 * Q_COLUMNS; i++) {
        double error = (double)cpu.out[i] - ref.out[i];
        errors += error * error;
        values += (double)ref.out[i] * ref.out[i];
    }
    if (!(sqrt(errors / values) < 0.01)) {
        fprintf(stderr, "relative error %g\n", sqrt(errors / values));
        exit(1);
    }
    close_bench(&cpu);
    close_bench(&ref);
}

/* Processor time of all threads: what a pass costs when the machine is not ours alone. */
static double processor_seconds(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void measure(struct bench *bench, const char *what, uint32_t sequences, uint32_t rows,
                    uint32_t depth, double seconds_max)
{
    static double seconds[PASSES_MAX];
    struct step step = make_step(bench, sequences, rows, depth);
    double tokens = sequences * (rows * (double)depth + rows * (rows + 1) / 2.0);
    double cpu = processor_seconds();
    uint64_t start = clock_ns();
    size_t passes = 0;
    while (passes < 3 ||
           (passes < PASSES_MAX && (double)(clock_ns() - start) < seconds_max * 1e9)) {
        uint64_t before = clock_ns();
        run(bench, &step, (uint32_t)passes % LAYERS);
        seconds[passes++] = 1e-9 * (double)(clock_ns() - before);
    }
    cpu = (processor_seconds() - cpu) / (double)passes;
    qsort(seconds, passes, sizeof(seconds[0]), by_value);
    double best = seconds[0];
    double token_bytes = (double)bench->kv->block_bytes / LAYERS / KV_BLOCK_TOKENS;
    double flops = 4.0 * Q_COLUMNS * tokens; /* K and V: a multiply-add each */
    printf("%s,%u,%u,%u,%u,%zu,%.1f,%.1f,%.1f,%.1f,%.1f,%.1f\n", what, bench->b->threads, sequences,
           rows, depth, passes, best * 1e6, seconds[passes / 2] * 1e6, cpu * 1e6,
           1e-9 * flops / best, 1e-9 * flops / cpu,
           rows == 1 ? 1e-9 * tokens * token_bytes / best : 0.0);
    fflush(stdout);
}

static void measure_only(struct bench *bench, char **numbers, double seconds)
{
    uint32_t sequences = (uint32_t)atoi(numbers[0]), rows = (uint32_t)atoi(numbers[1]);
    uint32_t depth = (uint32_t)atoi(numbers[2]);
    if (sequences < 1 || sequences > SEQUENCES_MAX || rows < 1 || sequences * rows > CHUNK_MAX ||
        depth + rows > CONTEXT_MAX)
        exit(2);
    measure(bench, rows == 1 ? "decode" : "prefill", sequences, rows, depth, seconds);
}

int main(int argc, char **argv)
{
    static const uint32_t depths[] = {128, 512, 1024, 2048, 4096};
    unsigned threads = argc > 1 ? (unsigned)atoi(argv[1]) : 2;
    double seconds = argc > 2 ? atof(argv[2]) : 0.5;
    const char *isa = argc > 3 ? argv[3] : NULL;
    enum kv_dtype kv_dtype = argc > 7 && strcmp(argv[7], "int8") == 0 ? KV_INT8 : KV_BFLOAT16;
    struct bench bench = {0};
    if (threads < 1)
        return 1;
    check(threads, isa, kv_dtype);
    open_bench(&bench, "cpu", threads, isa, kv_dtype);
    fill(&bench, SEQUENCES_MAX, CONTEXT_MAX);
    printf("# family %s, KV %s\n", bench.b->isa, kv_dtype_name(kv_dtype));
    printf("what,threads,sequences,rows,depth,passes,best_us,median_us,cpu_us,best_gflops,"
           "gflops_per_cpu,best_kv_gb_s\n");
    if (argc > 6) {
        measure_only(&bench, argv + 4, seconds);
        close_bench(&bench);
        return 0;
    }
    for (int i = 0; i < 5; i++)
        measure(&bench, "decode", 1, 1, depths[i], seconds);
    for (int i = 0; i < 4; i++)
        measure(&bench, "decode", 16, 1, depths[i], seconds);
    measure(&bench, "prefill", 1, 128, 0, seconds);
    measure(&bench, "prefill", 1, 512, 0, seconds);
    measure(&bench, "prefill", 1, 512, 1536, seconds);
    measure(&bench, "prefill", 1, 16, 4096, seconds);
    measure(&bench, "prefill", 8, 64, 1024, seconds);
    close_bench(&bench);
    return 0;
}
