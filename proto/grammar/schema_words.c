/* schema_words.c - the table of keywords. A new keyword is one row, and code where it is used. */
#include <math.h>
#include <string.h>

#include "proto/grammar/schema.h"

enum word_use { WORD_USED = 0, WORD_NOTE, WORD_REFUSED };

static const struct word {
    const char *name;
    enum word_use use;
} words[] = {
    {"$ref", WORD_USED},
    {"type", WORD_USED},
    {"nullable", WORD_USED},
    {"enum", WORD_USED},
    {"const", WORD_USED},
    {"anyOf", WORD_USED},
    {"oneOf", WORD_USED},
    {"allOf", WORD_USED},
    {"properties", WORD_USED},
    {"required", WORD_USED},
    {"additionalProperties", WORD_USED},
    {"unevaluatedProperties", WORD_USED},
    {"items", WORD_USED},
    {"prefixItems", WORD_USED},
    {"additionalItems", WORD_USED},
    {"unevaluatedItems", WORD_USED},
    {"minItems", WORD_USED},
    {"maxItems", WORD_USED},
    {"pattern", WORD_USED},
    {"format", WORD_USED},
    {"minLength", WORD_USED},
    {"maxLength", WORD_USED},
    {"minimum", WORD_USED},
    {"maximum", WORD_USED},
    {"exclusiveMinimum", WORD_USED},
    {"exclusiveMaximum", WORD_USED},
    {"multipleOf", WORD_USED},
    {"uniqueItems", WORD_USED},
    {"minProperties", WORD_USED},
    {"maxProperties", WORD_USED},
    {"not", WORD_REFUSED},
    {"if", WORD_REFUSED},
    {"then", WORD_REFUSED},
    {"else", WORD_REFUSED},
    {"patternProperties", WORD_REFUSED},
    {"propertyNames", WORD_REFUSED},
    {"dependencies", WORD_REFUSED},
    {"dependentRequired", WORD_REFUSED},
    {"dependentSchemas", WORD_REFUSED},
    {"contains", WORD_REFUSED},
    {"minContains", WORD_REFUSED},
    {"maxContains", WORD_REFUSED},
    {"$dynamicRef", WORD_REFUSED},
    {"$recursiveRef", WORD_REFUSED},
};

static enum word_use use_of(const char *word)
{
    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
        if (strcmp(words[i].name, word) == 0)
            return words[i].use;
    }
    return WORD_NOTE;
}

bool schema_word_is_note(const char *word)
{
    return use_of(word) == WORD_NOTE;
}

void schema_check_words(struct schema *schema, const json_t *node)
{
    const char *word;
    json_t *value;

    json_object_foreach((json_t *)node, word, value)
    {
        if (use_of(word) == WORD_REFUSED)
            schema_fail(schema, "'%s' is not supported", word);
    }
}

uint32_t schema_count(struct schema *schema, const json_t *node, const char *word,
                      uint32_t otherwise)
{
    const json_t *value = json_object_get(node, word);
    double number = json_number_value(value);

    if (!value)
        return otherwise;
    if (!json_is_number(value) || number < 0 || number != floor(number)) {
        schema_fail(schema, "'%s' must be an integer from 0 on", word);
        return otherwise;
    }
    return number > GRAMMAR_REPEAT_MAX ? GRAMMAR_REPEAT_MAX + 1 : (uint32_t)number;
}
