/* fp8.c - see fp8.h. The stored types say which matrices are meant; config.json only has to name a
 * method that stores them so. */
#include "worker/load/fp8.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "proto/base/assert.h"
#include "worker/load/tensor_names.h"

#define BLOCK_DEFAULT 128u

float fp8_e4m3_to_f32(uint8_t code)
{
    unsigned exponent = code >> 3 & 15u, fraction = code & 7u;
    float size = exponent == 0 ? (float)fraction * 0x1p-9f
                               : ldexpf(1 + (float)fraction / 8, (int)exponent - 7);
    if ((code & 0x7f) == 0x7f)
        size = (float)NAN;
    return (code & 0x80) != 0 ? -size : size;
}

/* --- config.json ----------------------------------------------------------------------------- */

static const char *text_of(const json_t *object, const char *key, const char *absent)
{
    const char *text = json_string_value(json_object_get(object, key));
    return text == NULL ? absent : text;
}

/* Weights of a compressed-tensors group: floats of 8 bits, a scale for a matrix, row or block. */
static bool is_fp8_group(const json_t *group)
{
    const json_t *weights = json_object_get(group, "weights");
    const char *strategy = text_of(weights, "strategy", "");
    return strcmp(text_of(weights, "type", ""), "float") == 0 &&
           json_integer_value(json_object_get(weights, "num_bits")) == 8 &&
           (strcmp(strategy, "tensor") == 0 || strcmp(strategy, "channel") == 0 ||
            strcmp(strategy, "block") == 0);
}

static bool all_groups_are_fp8(const json_t *config)
{
    const json_t *groups = json_object_get(config, "config_groups");
    const char *name = NULL;
    json_t *group = NULL;
    json_object_foreach((json_t *)(uintptr_t)groups, name, group)
    {
        if (!is_fp8_group(group))
            return false;
    }
    return json_object_size(groups) > 0;
}

static const json_t *config_of(const json_t *config)
{
    const json_t *quantised = json_object_get(config, "quantization_config");
    return json_is_object(quantised) ? quantised : json_object_get(config, "compression_config");
}

int fp8_check_config(const json_t *config, struct errmsg *err)
{
    const json_t *quantised = config_of(config);
    if (!json_is_object(quantised))
        return 0;
    const char *method = text_of(quantised, "quant_method", "");
    bool compressed = strcmp(method, "compressed-tensors") == 0;
    if (strcmp(method, "fbgemm_fp8") == 0 || (compressed && all_groups_are_fp8(quantised)) ||
        (strcmp(method, "fp8") == 0 && strcmp(text_of(quantised, "fmt", "e4m3"), "e4m3") == 0))
        return 0;
    return errmsg_set(err, -ENOTSUP,
                      "key 'quantization_config': method '%.40s'%s is not supported; supported: "
                      "fp8 (e4m3), fbgemm_fp8, compressed-tensors with 8-bit floats; or use F32, "
                      "F16, BF16 or a GGUF",
                      method, compressed ? " with these config_groups" : "");
}

/* Rows and columns of a block: as stated, else 128 each. */
static void read_block(const json_t *config, uint64_t *ret_rows, uint64_t *ret_columns)
{
    const json_t *quantised = config_of(config), *shape = NULL;
    shape = json_object_get(quantised, "weight_block_size");
    const json_t *groups = json_object_get(quantised, "config_groups");
    const char *name = NULL;
    json_t *group = NULL;
    json_object_foreach((json_t *)(uintptr_t)groups, name, group)
    {
        const json_t *stated =
            json_object_get(json_object_get(group, "weights"), "block_structure");
        shape = json_is_array(stated) ? stated : shape;
    }
    json_int_t rows = json_integer_value(json_array_get(shape, 0));
    json_int_t columns = json_integer_value(json_array_get(shape, 1));
    *ret_rows = rows > 0 ? (uint64_t)rows : BLOCK_DEFAULT;
    *ret_columns = columns > 0 ? (uint64_t)columns : BLOCK_DEFAULT;
}

/* --- scales ---------------------------------------------------------------------------------- */

static uint64_t blocks_of(uint64_t values, uint64_t block)
{
    return (values - 1) / block + 1;
}

/* Which part of the matrix a scale covers; false: the shape fits none. */
static bool fit_scales(const struct model_source *source, const struct model_tensor *found,
                       struct model_tensor *tensor)
{
    struct model_scales *scales = &tensor->scales;
    uint64_t block_rows, block_columns;
    read_block(model_source_config(source), &block_rows, &block_columns);
    bool flat = found->rows == 1 && found->columns == tensor->rows;
    *scales = (struct model_scales){.dtype = found->dtype, .data = found->data};
    if (found->rows == 1 && found->columns == 1) {
        scales->block_rows = tensor->rows;
        scales->block_columns = tensor->columns;
    } else if (flat || (found->rows == tensor->rows && found->columns == 1)) {
        scales->block_rows = 1;
        scales->block_columns = tensor->columns;
    } else if (found->rows == blocks_of(tensor->rows, block_rows) &&
               found->columns == blocks_of(tensor->columns, block_columns)) {
        scales->block_rows = block_rows;
        scales->block_columns = block_columns;
    } else {
        return false;
    }
    scales->row_scales = blocks_of(tensor->columns, scales->block_columns);
    return true;
}

int fp8_find_scales(const struct model_source *source, const char *name,
                    struct model_tensor *tensor, struct errmsg *err)
{
    static const char *const suffixes[] = {"_scale_inv", "_scale"};
    struct model_tensor found;
    char text[TENSOR_NAME_MAX + 16];
    int r = -ENOENT;
    if (strlen(name) >= TENSOR_NAME_MAX) /* scales of scales of ... end here */
        return errmsg_set(err, -EINVAL, "the name of an F8_E4M3 tensor is too long");
    if (tensor->planes != 1 || tensor->rows == 0 || tensor->columns == 0)
        return errmsg_set(err, -ENOTSUP, "tensor '%s' is of type F8_E4M3, but no matrix", name);
    for (size_t i = 0; i < 2 && r == -ENOENT; i++) {
        (void)snprintf(text, sizeof(text), "%s%s", name, suffixes[i]);
        r = model_source_tensor(source, text, &found, err);
    }
    if (r == -ENOENT)
        return errmsg_set(err, -EINVAL,
                          "tensor '%s' is of type F8_E4M3, but there is no '%s_scale' or "
                          "'%s_scale_inv'",
                          name, name, name);
    if (r < 0)
        return r;
    if (found.fp8 || dtype_is_quantised(found.dtype) || found.planes != 1 ||
        !fit_scales(source, &found, tensor))
        return errmsg_set(err, -EINVAL,
                          "tensor '%s' (%llu x %llu) has scales for neither a matrix, rows nor "
                          "blocks of '%s' (%llu x %llu)",
                          text, (unsigned long long)found.rows, (unsigned long long)found.columns,
                          name, (unsigned long long)tensor->rows,
                          (unsigned long long)tensor->columns);
    return 0;
}

/* --- values ---------------------------------------------------------------------------------- */

static float scale_at(const struct model_scales *scales, uint64_t i)
{
    float value;
    size_t bytes = dtype_info(scales->dtype)->block_bytes;
    dtype_to_f32(scales->dtype, (const char *)scales->data + i * bytes, &value, 1);
    return value;
}

void fp8_to_bf16(const struct model_tensor *tensor, uint64_t first, uint64_t count,
                 uint16_t *ret_values)
{
    const struct model_scales *scales = &tensor->scales;
    float values[256];
    ASSERT(tensor->fp8 && first + count <= tensor->rows);
    for (unsigned code = 0; code < 256; code++)
        values[code] = fp8_e4m3_to_f32((uint8_t)code);
    for (uint64_t row = first; row < first + count; row++) {
        const uint8_t *codes = (const uint8_t *)tensor->data + row * tensor->columns;
        uint64_t scale_row = row / scales->block_rows * scales->row_scales;
        for (uint64_t k = 0; k < tensor->columns;) {
            float scale = scale_at(scales, scale_row + k / scales->block_columns);
            uint64_t end = (k / scales->block_columns + 1) * scales->block_columns;
            for (; k < end && k < tensor->columns; k++)
                *ret_values++ = f32_to_bf16(values[codes[k]] * scale);
        }
    }
}
