/* fp8.h - weights of 8-bit floats (e4m3) with scales, as Hugging Face folders hold them.
 *
 *   quant_method            tensor beside X.weight        a scale covers
 *   fp8                     X.weight_scale_inv            weight_block_size, 128 x 128
 * (DeepSeek-V3) fp8                     X.weight_scale                the matrix fbgemm_fp8
 * X.weight_scale [rows, 1]      a row compressed-tensors      X.weight_scale                the
 * matrix, a row, or a block
 *
 * value = e4m3 * scale in all of them. Rows become bf16 on the way to the backend: e4m3 has 4
 * significant bits and bf16 8, so what is lost (2^-9) is small against what fp8 lost (2^-4), and
 * bf16 is the class with the fastest kernels. Costs twice the file's bytes in memory. Activations
 * are not quantised; their scales (input_scale) are of no use here. Thread: any. */
#ifndef REFRAIN_WORKER_LOAD_FP8_H
#define REFRAIN_WORKER_LOAD_FP8_H

#include "worker/load/model_source.h"

/* 0; -ENOTSUP: config.json speaks of a quantisation that is not one of these, *err names it. */
int fp8_check_config(const json_t *config, struct errmsg *err);
/* The scales of the e4m3 matrix `name`, into *tensor. -EINVAL: none, or of a shape that does not
 * fit. */
int fp8_find_scales(const struct model_source *source, const char *name,
                    struct model_tensor *tensor, struct errmsg *err);
/* Rows [first, first + count) as bf16, count * tensor->columns values. */
void fp8_to_bf16(const struct model_tensor *tensor, uint64_t first, uint64_t count,
                 uint16_t *ret_values);
/* The value of a code: 1 sign, 4 exponent (bias 7), 3 fraction; 0x7f and 0xff are no numbers. */
float fp8_e4m3_to_f32(uint8_t code);

#endif
