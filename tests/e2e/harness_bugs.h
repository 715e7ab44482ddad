/* harness_bugs.h - the public fault reports of cases/bugs.json against a running cluster.
 *
 * A test of an entry sends the entry's own requests (bugs_send) and more that make its rule sharp,
 * asserts its `right`, and ends with bugs_assert_well(): what must hold after every entry. */
#ifndef REFRAIN_TESTS_E2E_HARNESS_BUGS_H
#define REFRAIN_TESTS_E2E_HARNESS_BUGS_H

#include "tests/e2e/harness.h"

struct bugs {
    struct cluster cluster;
    json_t *entries;
    pid_t router_pid;
    char reference[512]; /* text of a fixed request at temperature 0 */
};

/* Skips aloud when cases/bugs.json is absent. */
void bugs_start(struct bugs *bugs, const char *model, const char *const *flags);
void bugs_stop(struct bugs *bugs);  /* as cluster_stop */
void bugs_abort(struct bugs *bugs); /* teardown */

/* bugs_start with the real model and a context of 256 tokens. */
void bugs_start_real(struct bugs *bugs);
/* For cmocka, where the group's setup has put its struct bugs into *state. */
int bugs_teardown(void **state);
int bugs_after(void **state); /* bugs_assert_well */

/* The i-th request of an entry as the text of its body, MODEL replaced; mem_free() it. */
char *bugs_body(const struct bugs *bugs, const char *id, size_t i);
/* The same as JSON, for members to be added. */
json_t *bugs_json(const struct bugs *bugs, const char *id, size_t i);
/* POST it to `path`. */
void bugs_send(const struct bugs *bugs, const char *id, size_t i, const char *path,
               struct http_answer *ret_answer);
/* Send a body (taken) and want this status; the answer's JSON is the caller's. */
json_t *bugs_ask(const struct bugs *bugs, const char *path, json_t *body, int status);
/* As bugs_ask with the entry's own body. */
json_t *bugs_ask_own(const struct bugs *bugs, const char *id, size_t i, int status);
/* Ids of the prompt that a chat's messages become: a copy of the body is answered with one token.
 */
json_t *bugs_prompt_ids(const struct bugs *bugs, const json_t *body);
/* Parts of an answer, borrowed; "" or NULL when absent. */
json_t *bugs_choice(const json_t *answer);
const char *bugs_text(const json_t *answer); /* content of a chat, text of a completion */
const char *bugs_finish(const json_t *answer);
json_int_t bugs_usage(const json_t *answer, const char *member);

/* At most so much is resident. Says nothing of a sanitizer's process, which keeps what was freed.
 */
void bugs_assert_memory(pid_t pid, uint64_t bytes_max);
/* The process lives, /health is 200, the reference is as before, nothing runs or waits, no block is
 * held. */
void bugs_assert_well(const struct bugs *bugs);

#endif
