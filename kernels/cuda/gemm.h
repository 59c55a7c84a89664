// Matrix products through cuBLASLt. The algorithm of each shape is chosen by timing, once, and kept on disk; or it is
// the library's first guess.
#pragma once

#include <cublasLt.h>

#include <memory>
#include <string>

#include "cuda/cuda.h"

namespace lk::cuda {

// d = alpha op(a) op(b) + beta c + bias, all row-major; c has d's type and layout and may be d. Batches are strided.
// Any mixture of a's type and d's type, any shape and any alignment works; sums are float32, f32 operands are not
// rounded. Codes of 8 bits are multiplied where they have factors: d is then the sum of their products times the
// factors of a's row and b's row; alpha is 1, beta 0 or 1, a and b are dense, b is [n, k], and there is one batch.
struct GemmCall {
  int64_t m = 0, n = 0, k = 0;
  const void *a = nullptr, *b = nullptr, *c = nullptr;
  void* d = nullptr;
  lk_dtype a_dtype = LK_F32, b_dtype = LK_F32, d_dtype = LK_F32;  // a and b alike, or both fp8
  const float *a_factors = nullptr, *b_factors = nullptr;         // [m], [n]
  bool transpose_a = false, transpose_b = false;                  // a is [k, m], b is [n, k]
  int64_t lda = 0, ldb = 0, ldd = 0;                              // row pitches in elements; 0: dense
  int64_t batch = 1, stride_a = 0, stride_b = 0, stride_d = 0;
  float alpha = 1, beta = 0;
  const void* bias = nullptr;  // [n], added to every row
  lk_dtype bias_dtype = LK_F32;
  void* workspace = nullptr;  // from Gemm::workspace(), which an operation with several products shares among them
};

class Gemm {
 public:
  explicit Gemm(Cuda& cuda);
  ~Gemm();
  Gemm(const Gemm&) = delete;
  Gemm& operator=(const Gemm&) = delete;

  void run(const GemmCall& call);
  void* workspace();  // scratch memory of the running operation
  // Chooses the algorithm now (d is overwritten): a run with beta != 0 cannot, and would take cuBLASLt's first guess.
  void prepare(const GemmCall& call);
  std::string version() const;  // "cuBLASLt 13.1.0"
  // As lora_kernels_choices.h has them.
  void choose_by_time(bool on);
  std::string choices() const;
  bool take_choices(const char* lines);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace lk::cuda
