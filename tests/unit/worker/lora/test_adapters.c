/* test_adapters.c - names, slots and loads: a slot is filled by a thread, used by sequences, and
 * free when the last of them has left after an unload. */
#include <cmocka.h>
#include <poll.h>

#include "tests/adapter_files.h"
#include "worker/lora/adapters.h"

#define DEADLINE_MS 20000

struct fixture {
    struct model_config config;
    struct shard shard;
    struct lora *lora;
    struct adapters *adapters;
    char root[64], one[96], two[96];
    /* Of the load that ended last. */
    struct adapter_asker asker;
    int result;
    char text[256];
    unsigned ended;
};

static void make_folder(const struct fixture *f, const char *folder, uint64_t seed)
{
    struct stored_file base = {.count = 1}, adapter;
    const struct adapter_spec spec = {
        .seed = seed, .rank = 2, .alpha = 4, .dtype = "F32", .targets = "[\"q_proj\"]"};
    base.items[0] = (struct stored_matrix){.name = "model.layers.0.self_attn.q_proj.weight",
                                           .rows = f->config.q_heads * f->config.head_dim,
                                           .columns = f->config.hidden};
    adapter_write(folder, &spec, &base, &adapter);
    stored_free(&adapter);
}

static int setup(void **state)
{
    struct fixture *f = calloc(1, sizeof(*f));
    const struct lora_limits limits = {1, 4};
    f->config = (struct model_config){.layers = 1,
                                      .hidden = 6,
                                      .ffn = 10,
                                      .vocab_size = 32,
                                      .q_heads = 4,
                                      .kv_heads = 2,
                                      .head_dim = 2,
                                      .value_dim = 2};
    assert_int_equal(shard_compute(&f->config, 0, 1, &f->shard, NULL), 0);
    assert_int_equal(lora_new(&f->config, &f->shard, &limits, NULL, &f->lora, NULL), 0);
    const struct adapters_settings settings = {
        .config = &f->config, .limits = limits, .ranks = 1, .lora = f->lora};
    assert_int_equal(adapters_new(&settings, &f->adapters, NULL), 0);
    (void)snprintf(f->root, sizeof(f->root), "/tmp/refrain-adapters-XXXXXX");
    assert_non_null(mkdtemp(f->root));
    (void)snprintf(f->one, sizeof(f->one), "%s/one", f->root);
    (void)snprintf(f->two, sizeof(f->two), "%s/two", f->root);
    make_folder(f, f->one, 1);
    make_folder(f, f->two, 2);
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *f = *state;
    adapters_free(f->adapters);
    lora_free(f->lora);
    adapter_remove(f->one);
    adapter_remove(f->two);
    (void)rmdir(f->root);
    free(f);
    return 0;
}

static void on_done(void *user, struct adapter_asker asker, int r, const char *text)
{
    struct fixture *f = user;
    f->asker = asker;
    f->result = r;
    f->ended++;
    (void)snprintf(f->text, sizeof(f->text), "%s", text);
}

/* Until the load ends: its result. */
static int load(struct fixture *f, const char *name, const char *path, struct errmsg *err)
{
    const struct adapter_asker asker = {7, 1234};
    int r = adapters_load(f->adapters, name, path, asker, err);
    if (r < 0)
        return r;
    struct pollfd fd = {adapters_fd(f->adapters), POLLIN, 0};
    assert_int_equal(poll(&fd, 1, DEADLINE_MS), 1);
    (void)adapters_turn(f->adapters, on_done, f);
    assert_int_equal(f->asker.router, 7);
    assert_int_equal(f->asker.ticket, 1234);
    return f->result;
}

static void test_load_when_it_ends_the_adapter_is_found_by_its_name(void **state)
{
    struct fixture *f = *state;
    struct adapter_view view;
    struct errmsg err = {""};
    assert_false(adapters_find(f->adapters, "one", &view));
    assert_int_equal(load(f, "one", f->one, &err), 0);
    assert_true(adapters_find(f->adapters, "one", &view));
    assert_string_equal(view.path, f->one);
    assert_int_equal(strncmp(view.key, "one@", 4), 0);
    assert_int_equal(strlen(view.key), 4 + 32);
    assert_int_equal(load(f, "one", f->one, &err), -EALREADY);
    assert_int_equal(load(f, "one", f->two, &err), -EEXIST);
    assert_int_equal(load(f, "two", f->two, &err), -ENOSPC);
    assert_non_null(strstr(err.text, "--max-loras"));
    assert_int_equal(load(f, "a b", f->two, &err), -EINVAL);
}

static void test_load_when_it_fails_leaves_the_slot_free(void **state)
{
    struct fixture *f = *state;
    struct adapter_view view;
    struct errmsg err = {""};
    assert_int_equal(load(f, "one", f->root, &err), -ENOENT);
    assert_non_null(strstr(f->text, "adapter_config.json"));
    assert_false(adapters_find(f->adapters, "one", &view));
    assert_int_equal(load(f, "one", f->two, &err), 0);
}

static void test_unload_when_somebody_uses_it_keeps_the_slot_until_he_leaves(void **state)
{
    struct fixture *f = *state;
    struct adapter_view view;
    struct errmsg err = {""};
    assert_int_equal(load(f, "one", f->one, &err), 0);
    assert_true(adapters_find(f->adapters, "one", &view));
    struct adapter_use *use = adapter_enter(view.use);
    uint32_t serial = adapter_serial(use);
    assert_int_equal(adapter_slot(use), 1);
    assert_int_equal(adapters_unload(f->adapters, "one", &err), 0);
    assert_false(adapters_find(f->adapters, "one", &view)); /* no new user */
    assert_int_equal(adapters_unload(f->adapters, "one", &err), -ENOENT);
    assert_int_equal(load(f, "two", f->two, &err), -ENOSPC);
    assert_non_null(strstr(err.text, "1 of them"));
    adapter_leave(use);
    assert_int_equal(load(f, "two", f->two, &err), 0);
    assert_string_equal(adapters_name(f->adapters, serial), "one");
    assert_string_equal(adapters_name(f->adapters, serial + 1), "two");
    assert_null(adapters_name(f->adapters, 0));
    assert_null(adapters_name(f->adapters, serial + 2));
}

static void test_flags_when_they_name_adapters_load_them_or_say_which_not(void **state)
{
    struct fixture *f = *state;
    struct errmsg err = {""};
    char modules[256];
    assert_int_equal(adapters_load_all(f->adapters, NULL, &err), 0);
    assert_int_equal(adapters_load_all(f->adapters, "nonsense", &err), -EINVAL);
    assert_non_null(strstr(err.text, "'nonsense' is no NAME=PATH"));
    (void)snprintf(modules, sizeof(modules), "one=%s,two=%s", f->one, f->two);
    assert_int_equal(adapters_load_all(f->adapters, modules, &err), -ENOSPC);
    assert_non_null(strstr(err.text, "adapter 'two'"));
    (void)snprintf(modules, sizeof(modules), "one=%s", f->one);
    assert_int_equal(adapters_load_all(f->adapters, modules, &err), -EINVAL);
    assert_non_null(strstr(err.text, "given twice"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_load_when_it_ends_the_adapter_is_found_by_its_name,
                                        setup, teardown),
        cmocka_unit_test_setup_teardown(test_load_when_it_fails_leaves_the_slot_free, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(
            test_unload_when_somebody_uses_it_keeps_the_slot_until_he_leaves, setup, teardown),
        cmocka_unit_test_setup_teardown(
            test_flags_when_they_name_adapters_load_them_or_say_which_not, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
