/* fuzz_json: any bytes. What is accepted must be written, read back, and be equal and bounded. */
#include <stdint.h>
#include <string.h>

#include "proto/base/assert.h"
#include "proto/base/json.h"

#define INPUT_BYTES_MAX ((size_t)1 << 16)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    struct errmsg err = {""};
    struct buffer out;
    json_t *value = NULL;
    json_t *again = NULL;
    int r = json_parse((const char *)data, bytes, INPUT_BYTES_MAX, &value, &err);

    if (r < 0) {
        ASSERT(value == NULL);
        ASSERT(err.text[0] != '\0' && memchr(err.text, '\0', sizeof(err.text)) != NULL);
        return 0;
    }
    buffer_init(&out, 8 * INPUT_BYTES_MAX); /* a control character takes six bytes */
    json_append_value(&out, value);
    ASSERT(buffer_finish(&out) == 0);
    r = json_parse(out.data, out.bytes, out.bytes_max, &again, &err);
    ASSERT(r == 0);
    ASSERT(json_equal(value, again));
    json_decref(again);
    json_decref(value);
    buffer_done(&out);
    return 0;
}
