/* bench_gemm.c - op_matmul at the shapes of SmolLM2-135M: 30 layers of distinct weights, so that
 * one row streams the whole model from memory as decode does.
 *
 *   bench_gemm [threads 2] [layer type, GGUF number: 3 = Q4_1] [seconds per line 1]
 *              [family of the cpu backend: auto]
 *
 * Checks the answer against the reference first, then prints CSV: best and median of passes,
 * processor time of the best, and the floor: the sum of each call's best over the passes, which is
 * what a pass takes on a machine that others use only now and then.
 * Figures to beat on 2 cores of Zen3 (llama.cpp): 660 tok/s prefill, 137 to 210 decode. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "kernels/backend.h"
#include "proto/base/clock.h"
#include "proto/base/mem.h"
#include "proto/base/rng.h"

#define LAYERS 30
#define ROWS_MAX 512
#define PASSES_MAX 4096
#define CALLS_MAX (LAYERS * 4 + 1)

struct shape {
    const char *name;
    uint32_t n, k;
};
static const struct shape shapes[] = {
    {"qkv", 960, 576}, {"o", 576, 576}, {"gate_up", 3072, 576}, {"down", 576, 1536}};
#define SHAPES 4

struct bench {
    struct backend *b, *ref;
    struct weight *layer[LAYERS][SHAPES], *head;
    float *x, *y;
    double seconds;
};

static float noise(uint64_t i)
{
    return (float)(rng_uniform(5, i) - 0.5);
}

/* Random codes; the scales of every block small and positive. */
static uint8_t *random_matrix(enum dtype dtype, uint32_t n, uint32_t k, uint64_t seed,
                              size_t *ret_row_bytes)
{
    const struct dtype_info *info = dtype_info(dtype);
    size_t row_bytes = (size_t)k / info->block_values * info->block_bytes, bytes = n * row_bytes;
    uint8_t *data = mem_alloc(bytes);
    uint64_t word = seed * 0x9e3779b97f4a7c15u + 1;
    for (size_t i = 0; i < bytes; i++) {
        word = word * 6364136223846793005u + 1442695040888963407u;
        data[i] = (uint8_t)(word >> 56);
    }
    for (size_t at = 0; at < bytes; at += info->block_bytes) {
        uint16_t half = f32_to_f16(0.002f), bf16 = f32_to_bf16(noise(at));
        float value = noise(at);
        if (dtype == DTYPE_F32)
            memcpy(data + at, &value, 4);
        else if (dtype == DTYPE_BF16)
            memcpy(data + at, &bf16, 2);
        else
            memcpy(data + at + (dtype == DTYPE_Q6_K ? 208 : 0), &half, 2);
        if (dtype == DTYPE_Q4_1 || dtype == DTYPE_Q5_1 || dtype == DTYPE_Q4_K ||
            dtype == DTYPE_Q5_K)
            memcpy(data + at + 2, &half, 2);
    }
    *ret_row_bytes = row_bytes;
    return data;
}

static struct weight *make_weight(struct backend *b, enum dtype dtype, uint32_t n, uint32_t k,
                                  uint64_t seed)
{
    struct weight_part part = {.dtype = dtype, .rows = n};
    struct weight *weight = NULL;
    struct errmsg err;
    uint8_t *data = random_matrix(dtype, n, k, seed, &part.row_bytes);
    part.data = data;
    if (op_weight_new(b, WEIGHT_MATMUL, &part, 1, k, &weight, &err) < 0) {
        fprintf(stderr, "%s\n", err.text);
        exit(1);
    }
    mem_free(data);
    return weight;
}

/* Relative error of 7 rows of every shape; ends the program when it is not small. */
static void check(struct bench *bench, enum dtype dtype)
{
    for (int s = 0; s < SHAPES; s++) {
        struct weight *w = make_weight(bench->ref, dtype, shapes[s].n, shapes[s].k, (uint64_t)s);
        struct tensor x = tensor_of(bench->x, 7, shapes[s].k);
        struct tensor y = tensor_of(bench->y, 7, shapes[s].n);
        struct tensor r = tensor_of(bench->y + 7 * 3072, 7, shapes[s].n);
        double errors = 0, values = 0;
        op_matmul(bench->b, &y, &x, bench->layer[0][s], false);
        op_matmul(bench->ref, &r, &x, w, false);
        for (uint32_t i = 0; i < 7 * shapes[s].n; i++) {
            errors += ((double)y.data[i] - r.data[i]) * ((double)y.data[i] - r.data[i]);
            values += (double)r.data[i] * r.data[i];
        }
        if (!(sqrt(errors / values) < 0.02)) {
            fprintf(stderr, "%s: relative error %g\n", shapes[s].name, sqrt(errors / values));
            exit(1);
        }
        op_weight_free(bench->ref, w);
    }
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

/* One call; remembers the shortest time that this very call took in any pass. */
static void call(struct bench *bench, struct weight *w, uint32_t rows, double *floor_seconds)
{
    struct tensor x = tensor_of(bench->x, rows, op_weight_columns(w));
    struct tensor y = tensor_of(bench->y, rows, op_weight_rows(w));
    uint64_t before = clock_ns();
    op_matmul(bench->b, &y, &x, w, false);
    *floor_seconds = fmin(*floor_seconds, 1e-9 * (double)(clock_ns() - before));
}

/* shape >= 0: that shape of all layers; ALL_HEAD: a decode pass; ALL_ONE: a prefill pass, whose
 * head sees one row. */
enum { ALL_HEAD = -1, ALL_ONE = -2 };

static void run_pass(struct bench *bench, int shape, uint32_t rows, double *floors)
{
    for (int layer = 0; layer < LAYERS; layer++) {
        for (int s = shape >= 0 ? shape : 0; s <= (shape >= 0 ? shape : SHAPES - 1); s++)
            call(bench, bench->layer[layer][s], rows, floors++);
    }
    if (shape < 0)
        call(bench, bench->head, shape == ALL_HEAD ? rows : 1, floors);
}

static void measure(struct bench *bench, const char *name, int shape, uint32_t rows,
                    double multiply_adds)
{
    static double seconds[PASSES_MAX], floors[CALLS_MAX];
    double cpu = 1e9, floor_sum = 0;
    uint64_t start = clock_ns();
    size_t passes = 0;
    for (int i = 0; i < CALLS_MAX; i++)
        floors[i] = 1e9;
    while (passes < 3 ||
           (passes < PASSES_MAX && (double)(clock_ns() - start) < bench->seconds * 1e9)) {
        uint64_t before = clock_ns();
        double cpu_before = processor_seconds();
        run_pass(bench, shape, rows, floors);
        seconds[passes++] = 1e-9 * (double)(clock_ns() - before);
        cpu = fmin(cpu, processor_seconds() - cpu_before);
    }
    for (int i = 0; i < CALLS_MAX && floors[i] < 1e9; i++)
        floor_sum += floors[i];
    qsort(seconds, passes, sizeof(seconds[0]), by_value);
    printf("%s,%u,%u,%zu,%.1f,%.1f,%.1f,%.1f,%.1f,%.1f,%.1f\n", name, bench->b->threads, rows,
           passes, seconds[0] * 1e6, seconds[passes / 2] * 1e6, cpu * 1e6, floor_sum * 1e6,
           2e-9 * multiply_adds / floor_sum, rows / seconds[0], rows / floor_sum);
    fflush(stdout);
}

static void run(struct bench *bench)
{
    static const uint32_t rows[] = {1, 2, 4, 8, 16, 32, 64, 128, 256, 512};
    double layer = 0;
    for (int s = 0; s < SHAPES; s++)
        layer += (double)shapes[s].n * shapes[s].k * LAYERS;
    double head = 49152.0 * 576;
    printf("# family %s\n", bench->b->isa);
    printf("what,threads,rows,passes,best_us,median_us,cpu_us,floor_us,floor_gops,"
           "best_rows_per_s,floor_rows_per_s\n");
    for (int s = 0; s < SHAPES; s++) {
        double mac = (double)shapes[s].n * shapes[s].k * LAYERS;
        measure(bench, shapes[s].name, s, 1, mac);
        measure(bench, shapes[s].name, s, 256, mac * 256);
    }
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        if (rows[i] <= 64)
            measure(bench, "decode", ALL_HEAD, rows[i], rows[i] * (layer + head));
        if (rows[i] >= 16)
            measure(bench, "prefill", ALL_ONE, rows[i], rows[i] * layer + head);
    }
}

int main(int argc, char **argv)
{
    struct backend_settings settings = {.name = "cpu",
                                        .threads = argc > 1 ? (unsigned)atoi(argv[1]) : 2,
                                        .isa = argc > 4 ? argv[4] : NULL};
    enum dtype dtype = argc > 2 ? (enum dtype)atoi(argv[2]) : DTYPE_Q4_1;
    struct bench bench = {.seconds = argc > 3 ? atof(argv[3]) : 1};
    struct errmsg err;
    if (dtype_info(dtype) == NULL || settings.threads < 1 ||
        backend_open(&settings, &bench.b, &err) < 0)
        return 1;
    settings.name = "ref";
    settings.isa = NULL;
    if (backend_open(&settings, &bench.ref, &err) < 0)
        return 1;
    bench.x = mem_alloc(ROWS_MAX * 1536 * sizeof(float));
    bench.y = mem_alloc((size_t)ROWS_MAX * 49152 * sizeof(float));
    for (size_t i = 0; i < ROWS_MAX * 1536; i++)
        bench.x[i] = noise(i);
    for (int layer = 0; layer < LAYERS; layer++) {
        for (int s = 0; s < SHAPES; s++)
            bench.layer[layer][s] =
                make_weight(bench.b, dtype, shapes[s].n, shapes[s].k, (uint64_t)(layer * 4 + s));
    }
    bench.head = make_weight(bench.b, DTYPE_Q8_0, 49152, 576, 999);
    check(&bench, dtype);
    run(&bench);

    for (int layer = 0; layer < LAYERS; layer++) {
        for (int s = 0; s < SHAPES; s++)
            op_weight_free(bench.b, bench.layer[layer][s]);
    }
    op_weight_free(bench.b, bench.head);
    mem_free(bench.x);
    mem_free(bench.y);
    backend_close(bench.b);
    backend_close(bench.ref);
    return 0;
}
