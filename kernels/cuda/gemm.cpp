// A product goes one of four ways: straight to cuBLASLt; through an f32 result where cuBLASLt does not write the
// wanted type; through f32 copies of the operands where it has no algorithm for their type or alignment on this device;
// or, for codes of 8 bits with factors that it does not take there, through sums of codes, which are scaled
// afterwards.
#include "cuda/gemm.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>
#include <vector>

#include "choice_lines.h"
#include "cuda/convert.h"
#include "cuda/row_codes.h"
#include "cuda/tuning.h"

namespace lk::cuda {

namespace {

constexpr int candidate_count = 16;
constexpr int timed_runs = 5;
constexpr float timing_budget = 15.0f;  // milliseconds per product
constexpr float slow = 1.25f;           // times the best: not worth another run
constexpr int64_t sum_rows = 1024;      // of codes, that are scaled at a time

static_assert(sizeof(cublasLtMatmulAlgo_t) == algorithm_bytes);

cudaDataType_t cuda_type(lk_dtype dtype) {
  switch (dtype) {
    case LK_F32: return CUDA_R_32F;
    case LK_F16: return CUDA_R_16F;
    case LK_F8_E4M3: return CUDA_R_8F_E4M3;
    case LK_F8_E5M2: return CUDA_R_8F_E5M2;
    case LK_I8: return CUDA_R_8I;
    case LK_I32: return CUDA_R_32I;
    default: return CUDA_R_16BF;
  }
}

bool has_factors(const GemmCall& call) { return call.a_factors != nullptr; }
bool is_code(lk_dtype dtype) { return dtype == LK_F8_E4M3 || dtype == LK_F8_E5M2 || dtype == LK_I8; }

// What cuBLASLt multiplies with float32 sums: f32 to f32, 16 bit to the same type or to f32, fp8 to any of them; and
// with exact sums i8 to i32.
bool writes_directly(const GemmCall& call) {
  return call.d_dtype == LK_F32 || call.d_dtype == call.a_dtype || is_code(call.a_dtype);
}

std::string text(const GemmCall& call) {
  return std::to_string(call.m) + " x " + std::to_string(call.n) + " x " + std::to_string(call.k) +
         (call.batch > 1 ? " batch " + std::to_string(call.batch) : "") + " " + lk_dtype_name(call.a_dtype) + " to " +
         lk_dtype_name(call.d_dtype);
}

void check(cublasStatus_t status, const GemmCall& call) {
  if (status != CUBLAS_STATUS_SUCCESS)
    throw Error(LK_E_DEVICE, "cublasLtMatmul " + text(call) + ": " + cublasLtGetStatusString(status));
}

// Algorithms need 16 bytes at most for their accesses; what a graph plans has 256.
uint32_t alignment_class(const void* data) {
  const auto address = reinterpret_cast<uintptr_t>(data);
  if (address % 256 == 0) return 256;
  return static_cast<uint32_t>(std::min<uintptr_t>(address & (~address + 1), 16));
}

GemmCall dense(GemmCall call) {
  if (call.lda == 0) call.lda = call.transpose_a ? call.m : call.k;
  if (call.ldb == 0) call.ldb = call.transpose_b ? call.k : call.n;
  if (call.ldd == 0) call.ldd = call.n;
  if (call.batch == 1) call.stride_a = call.stride_b = call.stride_d = 0;
  if (call.beta == 0) call.c = call.d;
  return call;
}

struct Alignment {
  uint32_t a, b, c, d;
};

// Everything the choice of an algorithm depends on.
using Key = std::array<int64_t, 19>;

// One number, and that of a's type where both have it, as choices that were kept by earlier versions name it.
int64_t operands_of(const GemmCall& call) {
  const int64_t other = call.b_dtype == call.a_dtype ? 0 : call.b_dtype;
  return call.a_dtype + 100 * other + 10000 * (has_factors(call) ? 1 : 0);
}

Key key_of(const GemmCall& call, const Alignment& alignment) {
  return {call.m,
          call.n,
          call.k,
          call.batch,
          call.lda,
          call.ldb,
          call.ldd,
          call.stride_a,
          call.stride_b,
          call.stride_d,
          operands_of(call),
          call.d_dtype,
          call.transpose_a,
          call.transpose_b,
          call.bias != nullptr,
          call.beta != 0.0,
          alignment.a,
          alignment.b,
          std::min(alignment.c, alignment.d)};
}

std::string text(const Key& key) {
  std::string text;
  for (const int64_t part : key) {
    if (!text.empty()) text += ',';
    text += std::to_string(part);
  }
  return text;
}

// Row-major d = a b is column-major d' = b' a': cuBLASLt's first operand is b.
struct Plan {
  cublasLtMatmulDescOpaque_t product;
  cublasLtMatrixLayoutOpaque_t a, b, d;
  cublasLtMatmulAlgo_t algorithm;
  bool found = false;   // there is an algorithm
  bool chosen = false;  // and it was timed, now or by an earlier process
  bool used = false;    // what was timed has run
};

// "cuBLASLt 4608 x 3072 x 3072 bf16 to bf16 + d, algorithm 66, timed"
std::string note(const GemmCall& call, const Plan& plan) {
  int32_t id = -1;
  size_t written = 0;
  cublasLtMatmulAlgoConfigGetAttribute(&plan.algorithm, CUBLASLT_ALGO_CONFIG_ID, &id, sizeof id, &written);
  return "cuBLASLt " + text(call) + (call.bias != nullptr ? " + bias" : "") + (call.beta != 0 ? " + d" : "") +
         ", algorithm " + std::to_string(id) + (plan.chosen ? ", timed" : ", first guess");
}

}  // namespace

struct Gemm::State {
  explicit State(Cuda& cuda)
      : cuda(cuda),
        workspace_bytes(int64_t{cuda.capability() >= 90 ? 32 : 4} << 20),
        tuning(cuda.tuning_cache(), std::string(cuda.device().name) + '\t' + version()) {
    const cublasStatus_t status = cublasLtCreate(&handle);
    if (status != CUBLAS_STATUS_SUCCESS)
      throw Error(LK_E_DEVICE, std::string("cublasLtCreate: ") + cublasLtGetStatusString(status));
  }
  ~State() {
    for (cudaEvent_t event : {start, stop}) {
      if (event != nullptr) cudaEventDestroy(event);
    }
    cublasLtDestroy(handle);
  }

  static std::string version();
  void multiply(GemmCall call, bool only_prepare);
  void through_f32_result(const GemmCall& call);
  void through_f32_operands(const GemmCall& call);
  void through_sums(const GemmCall& call);
  bool takes_factors(const GemmCall& call);
  const void* convert_codes(const void* codes, lk_dtype dtype, int64_t count);
  Plan& plan(const GemmCall& call, const Alignment& alignment, bool may_time);
  void describe(const GemmCall& call, Plan& plan);
  std::vector<cublasLtMatmulAlgo_t> candidates(Plan& plan, const Alignment& alignment);
  std::optional<cublasLtMatmulAlgo_t> known(Plan& plan, const Key& key);
  void choose(const GemmCall& call, Plan& plan, const std::vector<cublasLtMatmulAlgo_t>& algorithms);
  std::optional<float> time(const GemmCall& call, Plan& plan, const cublasLtMatmulAlgo_t& algorithm);
  cublasStatus_t enqueue(const GemmCall& call, Plan& plan, const cublasLtMatmulAlgo_t& algorithm);

  Cuda& cuda;
  const int64_t workspace_bytes;
  Tuning tuning;
  cublasLtHandle_t handle = nullptr;
  cudaEvent_t start = nullptr, stop = nullptr;
  bool by_time = true;
  std::map<Key, Plan> guessed, plans;  // those of first guesses alone, and others
};

std::string Gemm::State::version() {
  const size_t version = cublasLtGetVersion();
  return "cuBLASLt " + std::to_string(version / 10000) + "." + std::to_string(version / 100 % 100) + "." +
         std::to_string(version % 100);
}

void Gemm::State::multiply(GemmCall call, bool only_prepare) {
  call = dense(call);
  if (has_factors(call) && !takes_factors(call)) {
    if (!only_prepare) through_sums(call);
    return;
  }
  if (!writes_directly(call)) {
    if (!only_prepare) through_f32_result(call);
    return;
  }
  if (call.workspace == nullptr) call.workspace = cuda.scratch<std::byte>(workspace_bytes);
  // cuBLASLt wants the bias in d's type. Addresses are unknown while measuring: the copy is then assumed.
  if (call.bias != nullptr &&
      (call.bias_dtype != call.d_dtype || alignment_class(call.bias) < 16 || cuda.measuring())) {
    void* const bias = cuda.scratch<std::byte>(call.n * lk_dtype_size(call.d_dtype));
    convert(cuda, {call.bias, call.bias_dtype, call.n, 0}, {bias, call.d_dtype, call.n, 0}, 1, 1, call.n);
    call.bias = bias;
    call.bias_dtype = call.d_dtype;
  }
  if (cuda.measuring()) {
    const bool codes = is_code(call.a_dtype);  // which are aligned
    const auto a = codes ? 16 : static_cast<uint32_t>(lk_dtype_size(call.a_dtype)),
               d = codes ? 16 : static_cast<uint32_t>(lk_dtype_size(call.d_dtype));
    if (!plan(call, {a, a, d, d}, false).found && !only_prepare) through_f32_operands(call);
    return;
  }
  const Alignment alignment = {alignment_class(call.a), alignment_class(call.b), alignment_class(call.c),
                               alignment_class(call.d)};
  // Timing overwrites d, so with beta != 0 it must have been asked for.
  Plan& chosen = plan(call, alignment, !cuda.capturing() && (only_prepare || call.beta == 0));
  if (only_prepare) return;
  if (!chosen.found) return through_f32_operands(call);
  check(enqueue(call, chosen, chosen.algorithm), call);
  if (chosen.chosen && !chosen.used) {
    tuning.use(text(key_of(call, alignment)), &chosen.algorithm);
    chosen.used = true;
  }
  if (cuda.notes != nullptr) cuda.notes->ran.push_back(note(call, chosen));
}

void Gemm::State::through_f32_result(const GemmCall& call) {
  GemmCall wide = call;
  wide.d = cuda.scratch<float>(call.batch * call.m * call.n);
  wide.c = wide.d;
  wide.d_dtype = LK_F32;
  wide.ldd = call.n;
  wide.stride_d = call.m * call.n;
  const MatrixView f32 = {wide.d, LK_F32, wide.ldd, wide.stride_d};
  if (call.beta != 0) convert(cuda, {call.c, call.d_dtype, call.ldd, call.stride_d}, f32, call.batch, call.m, call.n);
  multiply(wide, false);
  convert(cuda, f32, {call.d, call.d_dtype, call.ldd, call.stride_d}, call.batch, call.m, call.n);
}

// Whether cuBLASLt scales by row and column here; what is aligned to 16 bytes, as these operands are, it reads. Its
// bias of f32 results would be bf16.
bool Gemm::State::takes_factors(const GemmCall& call) {
#if CUBLAS_VERSION >= 120900
  return call.a_dtype != LK_I8 && call.d_dtype != LK_F32 && plan(call, {16, 16, 16, 16}, false).found;
#else
  (void)call;
  return false;
#endif
}

void Gemm::State::through_sums(const GemmCall& call) {
  GemmCall sums = call;
  sums.a_factors = sums.b_factors = nullptr;
  sums.bias = nullptr;
  sums.beta = 0;
  sums.d_dtype = call.a_dtype == LK_I8 ? LK_I32 : LK_F32;
  if (!plan(dense(sums), {16, 16, 16, 16}, false).found) {  // no such products here; 16 bits hold the same values
    sums.a = convert_codes(call.a, call.a_dtype, call.m * call.k);
    sums.b = convert_codes(call.b, call.b_dtype, call.n * call.k);
    sums.a_dtype = sums.b_dtype = LK_BF16;
    sums.d_dtype = LK_F32;
  }
  sums.workspace = call.workspace != nullptr ? call.workspace : cuda.scratch<std::byte>(workspace_bytes);
  sums.d = cuda.scratch<float>(std::min(call.m, sum_rows) * call.n);  // i32 is as wide
  const auto at = [](const void* data, lk_dtype dtype, int64_t elements) {
    return static_cast<const std::byte*>(data) + elements * lk_dtype_size(dtype);
  };
  for (int64_t row = 0; row < call.m; row += sum_rows) {
    GemmCall part = sums;
    part.a = at(sums.a, sums.a_dtype, row * call.k);
    part.m = std::min(call.m - row, sum_rows);
    multiply(part, false);
    scale_sums(cuda, part.d, part.d_dtype, part.m, call.n, call.a_factors + row, call.b_factors, call.bias,
               call.bias_dtype, const_cast<std::byte*>(at(call.d, call.d_dtype, row * call.n)), call.d_dtype,
               call.beta != 0);
  }
}

const void* Gemm::State::convert_codes(const void* codes, lk_dtype dtype, int64_t count) {
  void* const copy = cuda.scratch<std::byte>(count * lk_dtype_size(LK_BF16));
  convert(cuda, {codes, dtype, count, 0}, {copy, LK_BF16, count, 0}, 1, 1, count);
  return copy;
}

void Gemm::State::through_f32_operands(const GemmCall& call) {
  if (call.a_dtype == LK_F32) check(CUBLAS_STATUS_NOT_SUPPORTED, call);
  GemmCall wide = call;
  const auto widen = [&](const void* data, lk_dtype dtype, int64_t rows, int64_t cols, int64_t pitch, int64_t& stride) {
    const int64_t matrices = stride == 0 ? 1 : call.batch;
    float* const copy = cuda.scratch<float>(matrices * rows * cols);
    const int64_t dense_stride = stride == 0 ? 0 : rows * cols;
    convert(cuda, {data, dtype, pitch, stride}, {copy, LK_F32, cols, dense_stride}, matrices, rows, cols);
    stride = dense_stride;
    return copy;
  };
  const int64_t a_cols = call.transpose_a ? call.m : call.k, b_cols = call.transpose_b ? call.k : call.n;
  wide.a = widen(call.a, call.a_dtype, call.m * call.k / a_cols, a_cols, call.lda, wide.stride_a);
  wide.b = widen(call.b, call.b_dtype, call.n * call.k / b_cols, b_cols, call.ldb, wide.stride_b);
  wide.lda = a_cols;
  wide.ldb = b_cols;
  wide.a_dtype = wide.b_dtype = LK_F32;
  multiply(wide, false);
}

// Another algorithm adds in another order. Where runs must repeat to the bit, one is timed only if the choice can be
// kept for the next process; otherwise it is the library's first guess, which is always the same.
Plan& Gemm::State::plan(const GemmCall& call, const Alignment& alignment, bool may_time) {
  may_time = may_time && by_time && (cuda.fast() || tuning.usable());
  const Key key = key_of(call, alignment);
  std::map<Key, Plan>& made = by_time ? plans : guessed;
  const auto [it, added] = made.try_emplace(key);
  Plan& plan = it->second;
  if (!added && (plan.chosen || !plan.found || !may_time)) return plan;
  if (added) {
    try {
      describe(call, plan);
      if (const auto algorithm = by_time ? known(plan, key) : std::nullopt) {
        plan.algorithm = *algorithm;
        plan.found = plan.chosen = true;
        return plan;
      }
    } catch (...) {
      made.erase(it);
      throw;
    }
  }
  const std::vector<cublasLtMatmulAlgo_t> algorithms = candidates(plan, alignment);
  if (algorithms.empty()) return plan;
  plan.algorithm = algorithms.front();
  plan.found = true;
  if (may_time) {
    choose(call, plan, algorithms);
    plan.chosen = true;
    tuning.keep(text(key), &plan.algorithm);
  }
  return plan;
}

void Gemm::State::describe(const GemmCall& call, Plan& plan) {
  const bool integers = call.d_dtype == LK_I32;
  check(cublasLtMatmulDescInit(&plan.product, integers ? CUBLAS_COMPUTE_32I : CUBLAS_COMPUTE_32F,
                               integers ? CUDA_R_32I : CUDA_R_32F),
        call);
  const auto set = [&](cublasLtMatmulDescAttributes_t attribute, const auto& value) {
    check(cublasLtMatmulDescSetAttribute(&plan.product, attribute, &value, sizeof value), call);
  };
  set(CUBLASLT_MATMUL_DESC_TRANSA, call.transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N);
  set(CUBLASLT_MATMUL_DESC_TRANSB, call.transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N);
  if (call.bias != nullptr) {
    set(CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_BIAS);
    set(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, cuda_type(call.d_dtype));
    set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, call.bias);  // 16-byte aligned, which the heuristic looks at
  }
#if CUBLAS_VERSION >= 120900
  if (has_factors(call)) {
    const int32_t by_row = CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F;
    set(CUBLASLT_MATMUL_DESC_A_SCALE_MODE, by_row);
    set(CUBLASLT_MATMUL_DESC_B_SCALE_MODE, by_row);
    set(CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, call.b_factors);
    set(CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, call.a_factors);
  }
#endif
  const auto layout = [&](cublasLtMatrixLayoutOpaque_t& matrix, lk_dtype dtype, int64_t rows, int64_t cols,
                          int64_t pitch, int64_t stride) {
    check(cublasLtMatrixLayoutInit(&matrix, cuda_type(dtype), static_cast<uint64_t>(rows), static_cast<uint64_t>(cols),
                                   pitch),
          call);
    const auto batch = static_cast<int32_t>(call.batch);
    check(cublasLtMatrixLayoutSetAttribute(&matrix, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &batch, sizeof batch), call);
    check(
        cublasLtMatrixLayoutSetAttribute(&matrix, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &stride, sizeof stride),
        call);
  };
  const bool ta = call.transpose_a, tb = call.transpose_b;
  layout(plan.a, call.b_dtype, tb ? call.k : call.n, tb ? call.n : call.k, call.ldb, call.stride_b);
  layout(plan.b, call.a_dtype, ta ? call.m : call.k, ta ? call.k : call.m, call.lda, call.stride_a);
  layout(plan.d, call.d_dtype, call.n, call.m, call.ldd, call.stride_d);
}

// Best guess first. Of the ways to add the parts of a split k, "compute type" keeps them in float32 and adds them in a
// separate step with an order of its own; "in place" and "output type" would round them to d's type and are excluded.
std::vector<cublasLtMatmulAlgo_t> Gemm::State::candidates(Plan& plan, const Alignment& alignment) {
  cublasLtMatmulPreferenceOpaque_t preference;
  cublasLtMatmulPreferenceInit(&preference);
  const auto set = [&](cublasLtMatmulPreferenceAttributes_t attribute, const auto& value) {
    cublasLtMatmulPreferenceSetAttribute(&preference, attribute, &value, sizeof value);
  };
  set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, static_cast<uint64_t>(workspace_bytes));
  set(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, static_cast<uint32_t>(CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE));
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, alignment.b);
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, alignment.a);
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, alignment.c);
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, alignment.d);
  std::array<cublasLtMatmulHeuristicResult_t, candidate_count> results{};
  int count = 0;
  // A status that is not success means the same as no result: the product goes another way.
  if (cublasLtMatmulAlgoGetHeuristic(handle, &plan.product, &plan.a, &plan.b, &plan.d, &plan.d, &preference,
                                     candidate_count, results.data(), &count) != CUBLAS_STATUS_SUCCESS)
    count = 0;
  std::vector<cublasLtMatmulAlgo_t> algorithms;
  for (int i = 0; i < count; ++i) {
    if (results[static_cast<size_t>(i)].state == CUBLAS_STATUS_SUCCESS)
      algorithms.push_back(results[static_cast<size_t>(i)].algo);
  }
  return algorithms;
}

std::optional<cublasLtMatmulAlgo_t> Gemm::State::known(Plan& plan, const Key& key) {
  cublasLtMatmulAlgo_t algorithm{};
  if (!tuning.find(text(key), &algorithm)) return {};
  cublasLtMatmulHeuristicResult_t result{};
  const cublasStatus_t status =
      cublasLtMatmulAlgoCheck(handle, &plan.product, &plan.a, &plan.b, &plan.d, &plan.d, &algorithm, &result);
  if (status != CUBLAS_STATUS_SUCCESS || result.workspaceSize > static_cast<size_t>(workspace_bytes)) return {};
  return algorithm;
}

// The one with the least median time; an algorithm that fails to start is passed over.
void Gemm::State::choose(const GemmCall& call, Plan& plan, const std::vector<cublasLtMatmulAlgo_t>& algorithms) {
  float best = 0, spent = 0;
  for (const cublasLtMatmulAlgo_t& algorithm : algorithms) {
    if (best > 0 && spent > timing_budget) break;
    const std::optional<float> warm_up = time(call, plan, algorithm);
    if (!warm_up) continue;
    spent += *warm_up;
    std::vector<float> times;
    while (times.size() < timed_runs && (times.empty() || spent <= timing_budget)) {
      const std::optional<float> elapsed = time(call, plan, algorithm);
      if (!elapsed) break;
      spent += *elapsed;
      times.push_back(*elapsed);
      if (best > 0 && *elapsed > slow * best) break;
    }
    if (times.empty()) continue;
    std::sort(times.begin(), times.end());
    const float median = times[times.size() / 2];
    if (best > 0 && median >= best) continue;
    best = median;
    plan.algorithm = algorithm;
  }
}

std::optional<float> Gemm::State::time(const GemmCall& call, Plan& plan, const cublasLtMatmulAlgo_t& algorithm) {
  for (cudaEvent_t* event : {&start, &stop}) {
    if (*event == nullptr) cuda::check(cudaEventCreate(event), "event");
  }
  cuda::check(cudaEventRecord(start, cuda.stream()), "event");
  if (enqueue(call, plan, algorithm) != CUBLAS_STATUS_SUCCESS) return {};
  cuda::check(cudaEventRecord(stop, cuda.stream()), "event");
  cuda::check(cudaEventSynchronize(stop), "cublasLtMatmul " + text(call));
  float milliseconds = 0;
  cuda::check(cudaEventElapsedTime(&milliseconds, start, stop), "event");
  return std::max(milliseconds, 1e-6f);
}

cublasStatus_t Gemm::State::enqueue(const GemmCall& call, Plan& plan, const cublasLtMatmulAlgo_t& algorithm) {
  cublasStatus_t status = CUBLAS_STATUS_SUCCESS;
  const auto point = [&](cublasLtMatmulDescAttributes_t attribute, const void* data) {
    if (data == nullptr || status != CUBLAS_STATUS_SUCCESS) return;
    status = cublasLtMatmulDescSetAttribute(&plan.product, attribute, &data, sizeof data);
  };
  point(CUBLASLT_MATMUL_DESC_BIAS_POINTER, call.bias);
  point(CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, call.b_factors);
  point(CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, call.a_factors);
  if (status != CUBLAS_STATUS_SUCCESS) return status;
  const int32_t one = 1, zero = 0;  // of exact sums
  const bool integers = call.d_dtype == LK_I32;
  const void* const alpha = integers ? static_cast<const void*>(&one) : &call.alpha;
  const void* const beta = integers ? static_cast<const void*>(&zero) : &call.beta;
  return cublasLtMatmul(handle, &plan.product, alpha, call.b, &plan.a, call.a, &plan.b, beta, call.c, &plan.d, call.d,
                        &plan.d, &algorithm, call.workspace, static_cast<size_t>(workspace_bytes), cuda.stream());
}

Gemm::Gemm(Cuda& cuda) : state_(std::make_unique<State>(cuda)) {}
Gemm::~Gemm() = default;
void Gemm::run(const GemmCall& call) { state_->multiply(call, false); }
void Gemm::prepare(const GemmCall& call) { state_->multiply(call, true); }
void* Gemm::workspace() { return state_->cuda.scratch<std::byte>(state_->workspace_bytes); }
std::string Gemm::version() const { return State::version(); }
void Gemm::choose_by_time(bool on) { state_->by_time = on; }
std::string Gemm::choices() const { return state_->tuning.used(); }

// What was planned before, to say how much memory it needs, is planned again.
bool Gemm::take_choices(const char* lines) {
  if (!state_->tuning.take(lines)) return false;
  state_->plans.clear();
  return true;
}

}  // namespace lk::cuda
