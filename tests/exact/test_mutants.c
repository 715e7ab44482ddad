/* test_mutants.c - the schedules see faults: each mutant puts one between two parts of the worker
 * (linked with --wrap), wrong now and then, and must be found. */
#include <cmocka.h>
#include <math.h>
#include <stdatomic.h>
#include <string.h>

#include "tests/exact/tiny.h"
#include "worker/kv/block_pool.h"
#include "worker/model/decoder.h"
#include "worker/sample/sampler.h"
#include "worker/tier/tier_file.h"
#include "worker/tier/tier_slots.h"
#include "worker/tp/comm.h"

#define SCHEDULES 200u
#define WRONG_ONE_IN 4u

enum mutant {
    MUTANT_NONE = 0,
    MUTANT_COPY_ONE_LESS,  /* of a block's head */
    MUTANT_MATCH_ONE_MORE, /* a token that differs counts as agreeing */
    MUTANT_TAIL_ONE_MORE,  /* a token is published whose KV is not computed */
    MUTANT_ULP_BY_ROWS,    /* a matmul's last bit depends on the batch */
    MUTANT_ULP_BY_RANK,    /* a sum's last bit is not the same each time */
    MUTANT_TIER_OP_LOST,   /* the last copy to or from the host tier */
    MUTANT_FILE_BIT,       /* a block that comes back from disk with one bit changed */
    MUTANT_OTHER_DRAW,     /* right logits, another random number */
};

static enum mutant mutant;
static atomic_uint calls;

static bool goes_wrong(enum mutant one)
{
    return mutant == one && atomic_fetch_add(&calls, 1) % WRONG_ONE_IN == WRONG_ONE_IN - 1;
}

void __real_decoder_copy_block(struct decoder *decoder, uint32_t from, uint32_t to,
                               uint32_t tokens);
void __wrap_decoder_copy_block(struct decoder *decoder, uint32_t from, uint32_t to,
                               uint32_t tokens);
void __wrap_decoder_copy_block(struct decoder *decoder, uint32_t from, uint32_t to, uint32_t tokens)
{
    if (tokens < BLOCK_TOKENS && goes_wrong(MUTANT_COPY_ONE_LESS))
        tokens--;
    __real_decoder_copy_block(decoder, from, to, tokens);
}

uint32_t __real_block_pool_match_partial(struct block_pool *pool, struct block_hash parent,
                                         const uint32_t *ids, uint32_t count, uint32_t *ret_tokens);
uint32_t __wrap_block_pool_match_partial(struct block_pool *pool, struct block_hash parent,
                                         const uint32_t *ids, uint32_t count, uint32_t *ret_tokens);
uint32_t __wrap_block_pool_match_partial(struct block_pool *pool, struct block_hash parent,
                                         const uint32_t *ids, uint32_t count, uint32_t *ret_tokens)
{
    uint32_t id = __real_block_pool_match_partial(pool, parent, ids, count, ret_tokens);
    if (id != BLOCK_NONE && *ret_tokens < count && goes_wrong(MUTANT_MATCH_ONE_MORE))
        ++*ret_tokens;
    return id;
}

void __real_block_pool_seal_tail(struct block_pool *pool, uint32_t id, struct block_hash parent,
                                 const uint32_t *ids, uint32_t tokens, bool first,
                                 uint32_t prompt_tokens);
void __wrap_block_pool_seal_tail(struct block_pool *pool, uint32_t id, struct block_hash parent,
                                 const uint32_t *ids, uint32_t tokens, bool first,
                                 uint32_t prompt_tokens);
void __wrap_block_pool_seal_tail(struct block_pool *pool, uint32_t id, struct block_hash parent,
                                 const uint32_t *ids, uint32_t tokens, bool first,
                                 uint32_t prompt_tokens)
{
    if (tokens + 1 < BLOCK_TOKENS && goes_wrong(MUTANT_TAIL_ONE_MORE))
        tokens++; /* the newest id: its row would be the next step's */
    __real_block_pool_seal_tail(pool, id, parent, ids, tokens, first, prompt_tokens);
}

void __real_op_matmul(struct backend *b, struct tensor *y, const struct tensor *x,
                      const struct weight *weight, bool accumulate);
void __wrap_op_matmul(struct backend *b, struct tensor *y, const struct tensor *x,
                      const struct weight *weight, bool accumulate);
void __wrap_op_matmul(struct backend *b, struct tensor *y, const struct tensor *x,
                      const struct weight *weight, bool accumulate)
{
    __real_op_matmul(b, y, x, weight, accumulate);
    if (mutant == MUTANT_ULP_BY_ROWS && x->rows % WRONG_ONE_IN == 3)
        y->data[0] = nextafterf(y->data[0], INFINITY);
}

int __real_comm_all_reduce_sum(struct comm *comm, float *values, size_t count);
int __wrap_comm_all_reduce_sum(struct comm *comm, float *values, size_t count);
int __wrap_comm_all_reduce_sum(struct comm *comm, float *values, size_t count)
{
    int r = __real_comm_all_reduce_sum(comm, values, count);
    if (comm->rank == 0 && goes_wrong(MUTANT_ULP_BY_RANK))
        values[0] = nextafterf(values[0], INFINITY);
    return r;
}

void __real_tier_slots_apply(struct tier_slots *slots, struct backend *backend, struct kv_pool *kv,
                             const struct step_tier_op *ops, uint32_t count);
void __wrap_tier_slots_apply(struct tier_slots *slots, struct backend *backend, struct kv_pool *kv,
                             const struct step_tier_op *ops, uint32_t count);
void __wrap_tier_slots_apply(struct tier_slots *slots, struct backend *backend, struct kv_pool *kv,
                             const struct step_tier_op *ops, uint32_t count)
{
    if (count > 0 && goes_wrong(MUTANT_TIER_OP_LOST))
        count--;
    __real_tier_slots_apply(slots, backend, kv, ops, count);
}

enum tier_io_result __real_tier_file_read(const struct tier_fs *fs, int folder,
                                          const struct tier_identity *identity,
                                          const struct tier_block *wanted, void *ret_payload);
enum tier_io_result __wrap_tier_file_read(const struct tier_fs *fs, int folder,
                                          const struct tier_identity *identity,
                                          const struct tier_block *wanted, void *ret_payload);
enum tier_io_result __wrap_tier_file_read(const struct tier_fs *fs, int folder,
                                          const struct tier_identity *identity,
                                          const struct tier_block *wanted, void *ret_payload)
{
    enum tier_io_result result = __real_tier_file_read(fs, folder, identity, wanted, ret_payload);
    if (result == TIER_IO_OK && goes_wrong(MUTANT_FILE_BIT))
        ((uint32_t *)ret_payload)[1] ^= 1u << 22;
    return result;
}

int __real_sampler_sample(struct sampler *sampler, float *logits, const struct sample_row *row,
                          struct sample_result *ret_result);
int __wrap_sampler_sample(struct sampler *sampler, float *logits, const struct sample_row *row,
                          struct sample_result *ret_result);
int __wrap_sampler_sample(struct sampler *sampler, float *logits, const struct sample_row *row,
                          struct sample_result *ret_result)
{
    struct sample_row other = *row;
    other.position += goes_wrong(MUTANT_OTHER_DRAW);
    return __real_sampler_sample(sampler, logits, &other, ret_result);
}

/* Schedules without a difference before the first that has one; SCHEDULES: none has. */
static uint32_t play(enum mutant one, uint32_t ranks, struct errmsg *ret_difference)
{
    mutant = MUTANT_NONE;
    struct exact *exact = tiny_open(TINY_F32, ranks, 5);
    uint32_t k = 0;
    int r = 0;
    mutant = one;
    atomic_store(&calls, 0);
    for (; k < SCHEDULES && (r = exact_run(exact, k, ret_difference)) == 0; k++)
        ;
    assert_true(r >= 0);
    mutant = MUTANT_NONE;
    exact_close(exact);
    return k;
}

static void assert_found(enum mutant one, uint32_t ranks, const char *word)
{
    struct errmsg difference = {""};
    uint32_t k = play(one, ranks, &difference);
    if (k == SCHEDULES)
        fail_msg("mutant %d: no difference in %u schedules", one, SCHEDULES);
    print_message("mutant %d: %s\n", one, difference.text);
    assert_non_null(strstr(difference.text, word));
}

static void test_without_a_mutant_nothing_is_found(void **state)
{
    struct errmsg difference = {""};
    (void)state;
    assert_int_equal(play(MUTANT_NONE, 1, &difference), SCHEDULES);
}

static void test_wrong_reuse_is_found(void **state)
{
    (void)state;
    assert_found(MUTANT_COPY_ONE_LESS, 1, "of 320 logits, the first is");
    assert_found(MUTANT_MATCH_ONE_MORE, 1, "of 320 logits, the first is");
    assert_found(MUTANT_TAIL_ONE_MORE, 1, "of 320 logits, the first is");
    assert_found(MUTANT_TIER_OP_LOST, 1, "of 320 logits, the first is");
    assert_found(MUTANT_FILE_BIT, 1, "of 320 logits, the first is");
}

static void test_last_bits_that_depend_on_others_are_found(void **state)
{
    (void)state;
    assert_found(MUTANT_ULP_BY_ROWS, 1, "of 320 logits, the first is");
    assert_found(MUTANT_ULP_BY_RANK, 2, "logits");
}

static void test_token_that_its_logits_do_not_explain_is_found(void **state)
{
    (void)state;
    assert_found(MUTANT_OTHER_DRAW, 1, "token ");
}

static void test_difference_when_its_schedule_is_played_again_is_the_same(void **state)
{
    struct errmsg first = {""}, again = {""};
    (void)state;
    uint32_t k = play(MUTANT_ULP_BY_ROWS, 1, &first);
    assert_true(k < SCHEDULES);
    struct exact *exact = tiny_open(TINY_F32, 1, 5);
    mutant = MUTANT_ULP_BY_ROWS;
    assert_int_equal(exact_run(exact, k, &again), 1);
    mutant = MUTANT_NONE;
    exact_close(exact);
    assert_string_equal(first.text, again.text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_without_a_mutant_nothing_is_found),
        cmocka_unit_test(test_wrong_reuse_is_found),
        cmocka_unit_test(test_last_bits_that_depend_on_others_are_found),
        cmocka_unit_test(test_token_that_its_logits_do_not_explain_is_found),
        cmocka_unit_test(test_difference_when_its_schedule_is_played_again_is_the_same),
    };
    return tiny_there() ? cmocka_run_group_tests(tests, NULL, NULL) : SKIPPED;
}
