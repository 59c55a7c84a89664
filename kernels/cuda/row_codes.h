// What a product in 8 bits (LK_PRODUCTS_E4M3, LK_PRODUCTS_I8) needs beside the product: rows rounded to codes, a
// weight's codes turned, and the factors put back where the library does not do it.
#pragma once

#include "cuda/cuda.h"

namespace lk::cuda {

// A matrix as codes of one byte and a factor for each of its rows; both in scratch memory.
struct RowCodes {
  uint8_t* codes;
  float* factors;
};

// Codes of dense a [rows, cols], after each column was multiplied with its factor: [cols], or one for all, or none
// (nullptr).
RowCodes round_rows(Cuda& cuda, lk_products products, const lk_tensor& a, int64_t rows, int64_t cols,
                    const float* column_factors, bool factor_per_column);

// [cols, rows] of a dense matrix of bytes [rows, cols]; in scratch memory.
const uint8_t* transpose_bytes(Cuda& cuda, const void* matrix, int64_t rows, int64_t cols);

// `count` numbers in scratch memory, all of them *value, or 1 where it is nullptr.
const float* repeat(Cuda& cuda, const float* value, int64_t count);

// d [rows, cols] = sums (f32 or i32) times the factors of row and column, + bias [cols] (optional), + d with `add`.
// Sums and d are aligned to 16 bytes.
void scale_sums(Cuda& cuda, const void* sums, lk_dtype sums_dtype, int64_t rows, int64_t cols, const float* row_factors,
                const float* column_factors, const void* bias, lk_dtype bias_dtype, void* d, lk_dtype d_dtype,
                bool add);

}  // namespace lk::cuda
