/* models.c: whose template makes a request's prompt. */
#include <cmocka.h>

#include <string.h>

#include "router/models.h"
#include "tests/unit/router/tiny_card.h"

#define OWN "own {{ messages|length }}"

struct fixture {
    struct models *models;
    struct model_card *card;
    struct api_request request;
    struct prompt_maker maker;
    struct api_error error;
};

static void setup(struct fixture *f, bool trust)
{
    const struct models_settings settings = {
        .answers = {.reasoning_parser = "auto", .tool_call_parser = "auto"},
        .trust_request_templates = trust};
    struct errmsg err;

    memset(f, 0, sizeof(*f));
    assert_int_equal(models_new(&settings, &f->models, &err), 0);
    f->card = tiny_card("{{ 1 }}");
    f->card->tool_template = mem_strdup("{{ 2 }}");
    models_add(f->models, f->card);
    f->request.kind = API_CHAT;
}

static void teardown(struct fixture *f)
{
    models_free(f->models);
    model_card_unref(f->card);
}

static int make(struct fixture *f, const char *template)
{
    f->request.chat_template = template;
    f->request.chat_template_bytes = template ? strlen(template) : 0;
    return models_maker(f->models, models_find(f->models, NULL), &f->request, &f->maker, &f->error);
}

static void test_templates_of_requests_are_not_trusted_by_themselves(void **state)
{
    struct fixture f;
    (void)state;
    setup(&f, false);
    assert_int_equal(make(&f, NULL), 0);
    assert_ptr_equal(f.maker.chat_template, models_find(f.models, NULL)->chat_template);
    assert_non_null(f.maker.tool_template);
    assert_true(make(&f, OWN) < 0);
    assert_int_equal(f.error.status, 400);
    assert_string_equal(f.error.param, "chat_template");
    assert_true(make(&f, "") < 0); /* even one that says nothing */
    teardown(&f);
}

static void test_a_trusted_one_stands_for_all_of_the_model_s(void **state)
{
    struct fixture f;
    (void)state;
    setup(&f, true);
    assert_int_equal(make(&f, OWN), 0);
    assert_non_null(f.maker.chat_template);
    assert_ptr_not_equal(f.maker.chat_template, models_find(f.models, NULL)->chat_template);
    assert_null(f.maker.tool_template);
    assert_int_equal(make(&f, ""), 0);
    assert_ptr_equal(f.maker.chat_template, models_find(f.models, NULL)->chat_template);
    assert_true(make(&f, "{% if %}") < 0);
    assert_non_null(strstr(f.error.message, "line 1"));
    teardown(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_templates_of_requests_are_not_trusted_by_themselves),
        cmocka_unit_test(test_a_trusted_one_stands_for_all_of_the_model_s),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
