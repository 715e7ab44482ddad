/* schema_merge.c - several schemas at once, as one.
 *
 * Keyword by keyword: limits take the narrower one, types and enums what both have, properties the
 * union (twice the same name: both, as an allOf of its own, looked at when it is walked), lists of
 * alternatives each with each. Two that contradict each other are `false`. What cannot be combined
 * is refused by name. Results live in schema->made.
 *
 * Cost: merging copies and compares, and a short text can ask for it many times (a thousand
 * alternatives beside a thousand members), so every member and value looked at is counted. */
#include <string.h>

#include "proto/grammar/scan.h"
#include "proto/grammar/schema.h"

#define FLAT_DEPTH_MAX 32u
#define ALTERNATIVES_MAX 64u

static const json_t *flat(struct schema *schema, const json_t *node, unsigned depth);

/* ---- cost ---- */

/* False: too much, said so. */
static bool spend(struct schema *schema, size_t steps)
{
    if (steps <= SCHEMA_MERGE_STEPS_MAX - schema->merge_steps) {
        schema->merge_steps += (uint32_t)steps;
        return true;
    }
    schema_fail(schema, "putting schemas together takes more than %u steps",
                SCHEMA_MERGE_STEPS_MAX);
    return false;
}

/* All values in it. The parser has bounded the depth. */
static size_t weight_of(const json_t *value)
{
    size_t weight = 1;
    const char *name;
    json_t *child;

    for (size_t i = 0; i < json_array_size(value); i++)
        weight += weight_of(json_array_get(value, i));
    json_object_foreach((json_t *)value, name, child)
    {
        weight += weight_of(child);
    }
    return weight;
}

static bool equal(struct schema *schema, const json_t *a, const json_t *b)
{
    return a == b || (spend(schema, weight_of(b)) && json_equal(a, b));
}

/* ---- references ---- */

/* One part of a JSON pointer in a URI: %XX, then ~0 and ~1. False: too long. */
static bool unescape(const char *from, size_t bytes, char *to, size_t to_max)
{
    struct scan scan = {from, bytes, 0};
    size_t out = 0;

    while (scan.at < bytes) {
        struct scan escape = {from, bytes, scan.at + 1};
        uint32_t code;
        char c = from[scan.at++];
        if (out + 1 >= to_max)
            return false;
        if (c == '%' && scan_hex(&escape, 2, &code) && code != 0) {
            c = (char)code;
            scan.at = escape.at;
        }
        if (c == '~' && (scan_take(&scan, '0') || scan_take(&scan, '1')))
            c = from[scan.at - 1] == '0' ? '~' : '/';
        to[out++] = c;
    }
    to[out] = '\0';
    return true;
}

static const json_t *child_of(const json_t *at, const char *part)
{
    size_t index = 0;

    if (json_is_object(at))
        return json_object_get(at, part);
    if (part[0] == '\0')
        return NULL;
    for (const char *c = part; *c; c++) {
        if (*c < '0' || *c > '9' || index > GRAMMAR_TEXT_MAX)
            return NULL;
        index = index * 10 + (size_t)(*c - '0');
    }
    return json_array_get(at, index);
}

const json_t *schema_resolve(struct schema *schema, const char *reference)
{
    const json_t *at = schema->root;
    const char *rest = reference;
    char part[256];

    if (*rest != '#' || (rest[1] != '\0' && rest[1] != '/')) {
        schema_fail(schema,
                    "'$ref' to '%.100s': only references into the schema itself "
                    "('#/...') are supported",
                    reference);
        return NULL;
    }
    for (rest++; at && *rest == '/';) {
        size_t bytes = strcspn(++rest, "/");
        at = unescape(rest, bytes, part, sizeof(part)) ? child_of(at, part) : NULL;
        rest += bytes;
    }
    if (!at)
        schema_fail(schema, "'$ref' to '%.100s' points at nothing", reference);
    return at;
}

/* ---- one keyword of both ---- */

static json_t *both_schemas(struct schema *schema, json_t *a, json_t *b)
{
    if (json_is_false(a) || json_is_false(b))
        return json_false();
    if (json_is_true(a) || equal(schema, a, b))
        return json_incref(b);
    if (json_is_true(b))
        return json_incref(a);
    return json_pack("{s:[O,O]}", "allOf", a, b);
}

static bool contains(const json_t *list, const json_t *value)
{
    for (size_t i = 0; i < json_array_size(list); i++) {
        if (json_equal(json_array_get(list, i), value))
            return true;
    }
    return false;
}

static json_t *as_list(const json_t *value)
{
    json_t *list;

    if (json_is_array(value))
        return json_copy((json_t *)value);
    list = json_array();
    (void)json_array_append(list, (json_t *)value);
    return list;
}

/* What both lists have; `integer` is in `number`. NULL: nothing. */
static json_t *intersect(struct schema *schema, const json_t *a, const json_t *b, bool types)
{
    if (!spend(schema, (json_array_size(a) + 1) * weight_of(b)))
        return NULL;
    json_t *left = as_list(a), *right = as_list(b), *out = json_array();
    json_t *number = json_string("number"), *integer = json_string("integer");

    for (unsigned side = 0; side < 2; side++) {
        const json_t *mine = side == 0 ? left : right, *theirs = side == 0 ? right : left;
        for (size_t i = 0; i < json_array_size(mine); i++) {
            json_t *value = json_array_get(mine, i);
            bool both = contains(theirs, value) ||
                        (types && json_equal(value, integer) && contains(theirs, number));
            if (both && !contains(out, value))
                (void)json_array_append(out, value);
        }
    }
    json_decref(left);
    json_decref(right);
    json_decref(number);
    json_decref(integer);
    if (json_array_size(out) > 0)
        return out;
    json_decref(out);
    return NULL;
}

static json_t *both_properties(struct schema *schema, const json_t *a, const json_t *b)
{
    if (!spend(schema, json_object_size(a) + json_object_size(b)))
        return NULL;
    json_t *out = json_copy((json_t *)a);
    const char *name;
    json_t *value;

    json_object_foreach((json_t *)b, name, value)
    {
        json_t *mine = json_object_get(out, name);
        (void)json_object_set_new(out, name,
                                  mine ? both_schemas(schema, mine, value) : json_incref(value));
    }
    return out;
}

static json_t *union_of(struct schema *schema, const json_t *a, const json_t *b)
{
    if (!spend(schema, json_array_size(a) + json_array_size(b)))
        return NULL;
    json_t *out = json_copy((json_t *)a), *seen = json_object();

    for (size_t i = 0; i < json_array_size(a); i++) {
        const char *name = json_string_value(json_array_get(a, i));
        if (name)
            (void)json_object_set_new(seen, name, json_true());
    }
    for (size_t i = 0; i < json_array_size(b); i++) {
        const char *name = json_string_value(json_array_get(b, i));
        if (!name || !json_object_get(seen, name))
            (void)json_array_append(out, json_array_get(b, i));
    }
    json_decref(seen);
    return out;
}

static json_t *each_with_each(struct schema *schema, const json_t *a, const json_t *b)
{
    json_t *out = json_array();

    if (json_array_size(a) * json_array_size(b) > ALTERNATIVES_MAX)
        schema_fail(schema, "lists of %zu and %zu alternatives at once; at most %u pairs",
                    json_array_size(a), json_array_size(b), ALTERNATIVES_MAX);
    for (size_t i = 0; i < json_array_size(a) && !schema->graph->failed; i++) {
        for (size_t k = 0; k < json_array_size(b); k++)
            (void)json_array_append_new(
                out, both_schemas(schema, json_array_get(a, i), json_array_get(b, k)));
    }
    return out;
}

static bool is_word(const char *word, const char *const *list)
{
    for (; *list; list++) {
        if (strcmp(word, *list) == 0)
            return true;
    }
    return false;
}

/* *ret: the combined value, NULL when nothing meets both. False: refused. */
static bool both_values(struct schema *schema, const char *word, json_t *a, json_t *b, json_t **ret)
{
    static const char *const larger[] = {"minimum",  "exclusiveMinimum", "minLength",
                                         "minItems", "minProperties",    NULL};
    static const char *const smaller[] = {"maximum",  "exclusiveMaximum", "maxLength",
                                          "maxItems", "maxProperties",    NULL};
    static const char *const schemas[] = {"items",
                                          "additionalProperties",
                                          "additionalItems",
                                          "unevaluatedProperties",
                                          "unevaluatedItems",
                                          NULL};
    bool numbers = json_is_number(a) && json_is_number(b);

    if (numbers && (is_word(word, larger) || is_word(word, smaller))) {
        bool b_wins = (json_number_value(b) > json_number_value(a)) == is_word(word, larger);
        *ret = json_incref(b_wins ? b : a);
    } else if (strcmp(word, "type") == 0 || strcmp(word, "enum") == 0) {
        *ret = intersect(schema, a, b, word[0] == 't');
    } else if (strcmp(word, "const") == 0) {
        *ret = NULL; /* they differ */
    } else if (strcmp(word, "properties") == 0 && json_is_object(a) && json_is_object(b)) {
        *ret = both_properties(schema, a, b);
    } else if (strcmp(word, "required") == 0 && json_is_array(a) && json_is_array(b)) {
        *ret = union_of(schema, a, b);
    } else if (is_word(word, schemas)) {
        *ret = both_schemas(schema, a, b);
    } else if (strcmp(word, "anyOf") == 0) {
        *ret = each_with_each(schema, a, b);
    } else if (strcmp(word, "uniqueItems") == 0 || strcmp(word, "nullable") == 0) {
        bool unique = word[0] == 'u';
        *ret = json_boolean(unique ? json_is_true(a) || json_is_true(b)
                                   : json_is_true(a) && json_is_true(b));
    } else {
        schema_fail(schema, "'%s' of two schemas cannot be combined", word);
        return false;
    }
    return true;
}

/* A closed object beside one with other properties: they could only be left out. */
static void check_closed(struct schema *schema, const json_t *closed, const json_t *other)
{
    const json_t *more = json_object_get(closed, "additionalProperties");
    const json_t *mine = json_object_get(closed, "properties");
    json_t *theirs = json_object_get(other, "properties");
    const char *name;
    json_t *value;

    if (!more || json_is_true(more) || !spend(schema, json_object_size(theirs)))
        return;
    json_object_foreach(theirs, name, value)
    {
        if (!json_object_get(mine, name))
            schema_fail(schema,
                        "property '%.60s' beside 'additionalProperties' of another schema "
                        "cannot be combined",
                        name);
    }
}

/* *into takes b in. False: nothing meets both, or it was refused. */
static bool merge_into(struct schema *schema, json_t *into, const json_t *b)
{
    const char *word;
    json_t *value;

    if (!spend(schema, json_object_size(b)))
        return false;
    check_closed(schema, into, b);
    check_closed(schema, b, into);
    json_object_foreach((json_t *)b, word, value)
    {
        json_t *mine = json_object_get(into, word), *both = NULL;
        if (!mine) {
            (void)json_object_set(into, word, value);
        } else if (!schema_word_is_note(word) && !equal(schema, mine, value)) {
            if (!both_values(schema, word, mine, value, &both) || !both)
                return false;
            (void)json_object_set_new(into, word, both);
        }
    }
    return !schema->graph->failed;
}

static const json_t *keep(struct schema *schema, json_t *made)
{
    (void)json_array_append_new(schema->made, made);
    return made;
}

/* ---- flat ---- */

static bool add_part(struct schema *schema, json_t *into, const json_t *part, unsigned depth)
{
    const json_t *other = flat(schema, part, depth + 1);

    if (schema->graph->failed || json_is_false(other))
        return false;
    if (json_is_true(other))
        return true;
    if (!json_is_object(other)) {
        schema_fail(schema, "a schema must be an object or a boolean");
        return false;
    }
    schema_check_words(schema, other);
    return merge_into(schema, into, other);
}

/* What the words that point elsewhere add to `out`. False: it is `false`, or it was refused. */
static bool add_parts(struct schema *schema, json_t *out, const json_t *node, unsigned depth)
{
    const json_t *reference = json_object_get(node, "$ref");
    const json_t *all = json_object_get(node, "allOf"), *one = json_object_get(node, "oneOf");
    bool good = true;

    if (reference) {
        const json_t *target =
            json_is_string(reference) ? schema_resolve(schema, json_string_value(reference)) : NULL;
        good = target && add_part(schema, out, target, depth);
    }
    if (good && one) {
        json_t *any = json_pack("{s:O}", "anyOf", (json_t *)one);
        good = merge_into(schema, out, any);
        json_decref(any);
    }
    for (size_t i = 0; i < json_array_size(all) && good; i++)
        good = add_part(schema, out, json_array_get(all, i), depth);
    return good;
}

static const json_t *flat(struct schema *schema, const json_t *node, unsigned depth)
{
    if (!json_is_object(node) ||
        (!json_object_get(node, "$ref") && !json_object_get(node, "allOf") &&
         !json_object_get(node, "oneOf")))
        return node;
    if (depth > FLAT_DEPTH_MAX || ++schema->visits > SCHEMA_VISITS_MAX) {
        schema_fail(schema, "'allOf' and '$ref' lead through more than %u schemas without an end",
                    depth > FLAT_DEPTH_MAX ? FLAT_DEPTH_MAX : SCHEMA_VISITS_MAX);
        return json_false();
    }
    if (!spend(schema, json_object_size(node)))
        return json_false();
    json_t *out = json_copy((json_t *)node);
    (void)json_object_del(out, "$ref");
    (void)json_object_del(out, "allOf");
    (void)json_object_del(out, "oneOf");
    if (add_parts(schema, out, node, depth))
        return keep(schema, out);
    json_decref(out);
    return json_false();
}

const json_t *schema_flat(struct schema *schema, const json_t *node)
{
    return flat(schema, node, 0);
}

const json_t *schema_both(struct schema *schema, const json_t *a, const json_t *b)
{
    const json_t *base = schema_flat(schema, a);

    if (!spend(schema, json_object_size(base)))
        return json_false();
    json_t *out = json_copy((json_t *)base);
    if (json_is_object(out) && add_part(schema, out, b, 0))
        return keep(schema, out);
    json_decref(out);
    return json_false();
}
