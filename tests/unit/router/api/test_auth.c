/* auth.c: which headers show a key. */
#include <cmocka.h>

#include "router/api/auth.h"

static void test_only_a_whole_key_after_bearer_counts(void **state)
{
    struct auth *auth = auth_new("alpha, beta");
    (void)state;
    assert_true(auth_header_ok(auth, "Bearer alpha"));
    assert_true(auth_header_ok(auth, "bearer beta"));
    assert_false(auth_header_ok(auth, "Bearer alph"));
    assert_false(auth_header_ok(auth, "Bearer alphaalpha"));
    assert_false(auth_header_ok(auth, "Bearer alpha, beta"));
    assert_false(auth_header_ok(auth, "Bearer "));
    assert_false(auth_header_ok(auth, "Basic alpha"));
    assert_false(auth_header_ok(auth, "alpha"));
    assert_false(auth_header_ok(auth, NULL));
    auth_free(auth);
}

static void test_without_keys_no_header_is_a_key(void **state)
{
    struct auth *auth = auth_new(NULL);
    (void)state;
    assert_false(auth_header_ok(auth, "Bearer "));
    assert_false(auth_header_ok(auth, "Bearer x"));
    auth_free(auth);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_only_a_whole_key_after_bearer_counts),
        cmocka_unit_test(test_without_keys_no_header_is_a_key),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
