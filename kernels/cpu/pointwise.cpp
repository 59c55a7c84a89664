// A program of elementwise operations. Each thread takes 256 elements at a time, the size of a block of codes, through
// all instructions: the values of all instructions for them lie in the cache, and an instruction is a loop over them
// that vectorises, the same one that the operation by itself runs. What is the same for all elements is computed once.
#include "pointwise.h"

#include <bit>
#include <cmath>
#include <limits>

#include "cpu/binary_functions.h"
#include "cpu/blockwise.h"
#include "cpu/broadcast.h"
#include "cpu/convert.h"
#include "cpu/formats.h"
#include "cpu/unary_functions.h"
#include "round_stochastic.h"

namespace lk::cpu {

namespace {

constexpr int64_t block = blockwise_size;

template <class F>
void apply(int64_t n, const float* x, float* y, F f) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) y[i] = f.value(x[i]);
}

template <class F>
void combine(int64_t n, const float* a, const float* b, float* y, F f) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) y[i] = static_cast<float>(f(a[i], b[i]));
}

void combine(lk_binary_kind kind, int64_t n, const float* a, const float* b, float* y) {
  switch (kind) {
    case LK_ADD: return combine(n, a, b, y, Add{});
    case LK_SUB: return combine(n, a, b, y, Sub{});
    case LK_MUL: return combine(n, a, b, y, Mul{});
    case LK_DIV: return combine(n, a, b, y, Div{});
    case LK_MAX: return combine(n, a, b, y, Max{});
    case LK_MIN: return combine(n, a, b, y, Min{});
    case LK_GREATER_EQUAL: return combine(n, a, b, y, GreaterEqual{});
    case LK_EQUAL: return combine(n, a, b, y, Equal{});
    case LK_LESS: return combine(n, a, b, y, Less{});
    case LK_LESS_EQUAL: return combine(n, a, b, y, LessEqual{});
    default: return combine(n, a, b, y, Greater{});
  }
}

void choose(int64_t n, const float* condition, const float* a, const float* b, float* y) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) y[i] = condition[i] != 0.0f ? a[i] : b[i];
}

template <class Format>
void round(int64_t n, const float* x, float* y) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) y[i] = Format::widen(Format::narrow(x[i]));
}

// Elements begin .. begin + n - 1; begin is a multiple of 4.
void round_at_random(const lk_pointwise_instruction& instruction, int32_t step, int64_t begin, int64_t n,
                     const float* x, float* y) {
  for (int64_t i = 0; i < n; i += 4) {
    const PhiloxBlock random = stochastic_words((begin + i) / 4, step, instruction.seed, instruction.stream);
    for (int64_t k = i; k < std::min(n, i + 4); ++k)
      y[k] = std::bit_cast<float>(stochastic_bf16(std::bit_cast<uint32_t>(x[k]), random.words[k % 4]) << 16);
  }
}

template <class T>
void load_integers(const void* from, int64_t n, float* to) {
  for (int64_t i = 0; i < n; ++i) to[i] = static_cast<float>(static_cast<const T*>(from)[i]);
}

const void* element(const lk_tensor& x, int64_t i) {
  return static_cast<const char*>(x.data) + i * lk_dtype_size(x.dtype);
}

void load_run(const lk_tensor& x, int64_t begin, int64_t n, float* to) {
  const void* const from = element(x, begin);
  if (x.dtype == LK_I32) return load_integers<int32_t>(from, n, to);
  if (x.dtype == LK_U8) return load_integers<uint8_t>(from, n, to);
  widen(Cpu(1), from, x.dtype, to, n);
}

// Floats to integers as lk_cast does it: to nearest even, to the ends of the range, NaN to 0.
template <class T>
void store_integers(const float* from, int64_t n, void* to) {
  constexpr double low = std::numeric_limits<T>::min(), high = std::numeric_limits<T>::max();
  for (int64_t i = 0; i < n; ++i) {
    const double value = std::nearbyint(static_cast<double>(from[i]));
    static_cast<T*>(to)[i] = from[i] != from[i] ? T{0} : static_cast<T>(std::clamp(value, low, high));
  }
}

void store_run(const float* from, const lk_tensor& y, int64_t begin, int64_t n) {
  void* const to = const_cast<void*>(element(y, begin));
  if (y.dtype == LK_I32) return store_integers<int32_t>(from, n, to);
  if (y.dtype == LK_U8) return store_integers<uint8_t>(from, n, to);
  narrow(Cpu(1), from, to, y.dtype, n);
}

// The program over parts of the elements, by one thread.
class Interpreter {
 public:
  explicit Interpreter(const PointwiseProgram& program) : program_(program), scalars_(program) {
    for (size_t i = 0; i < program_.inputs.size(); ++i) {
      if (!scalars_[static_cast<int32_t>(i)]) continue;
      load_run(program_.inputs[i].x, 0, 1, values_[i]);
      spread(static_cast<int32_t>(i));
    }
    for (size_t i = 0; i < program_.instructions.size(); ++i) {
      if (!scalars_[program_.value_of(i)]) continue;
      execute(i, 0, 1);
      spread(program_.value_of(i));
    }
  }

  void run(int64_t begin, int64_t n) {  // begin is a multiple of 256, n at most 256
    for (size_t i = 0; i < program_.inputs.size(); ++i)
      if (!scalars_[static_cast<int32_t>(i)]) load(program_.inputs[i], begin, n, values_[i]);
    for (size_t i = 0; i < program_.instructions.size(); ++i)
      if (!scalars_[program_.value_of(i)]) execute(i, begin, n);
    for (const lk_pointwise_output& output : program_.outputs) {
      const float* const from = values_[output.value];
      if (!pointwise_codes(output)) {
        store_run(from, output.y, begin, n);
        continue;
      }
      static_cast<float*>(output.scales.data)[begin / block] =
          quantize_block(blockwise_map(output.is_signed != 0), from, n, static_cast<uint8_t*>(output.y.data) + begin);
    }
  }

 private:
  void spread(int32_t value) { std::fill_n(values_[value] + 1, block - 1, values_[value][0]); }

  void load(const lk_pointwise_input& input, int64_t begin, int64_t n, float* to) const {
    if (pointwise_codes(input)) {
      const float scale = static_cast<const float*>(input.scales.data)[begin / block];
      return dequantize_block(blockwise_map(input.is_signed != 0), static_cast<const uint8_t*>(input.x.data) + begin,
                              scale, n, to);
    }
    if (numel(input.x) == program_.count) return load_run(input.x, begin, n, to);
    const Walk<1> walk(program_.domain, {&input.x});
    for (int64_t i = begin; i < begin + n;) {
      const int64_t row = i / walk.inner(), column = i % walk.inner();
      const int64_t length = std::min(walk.inner() - column, begin + n - i), at = walk.offset(0, row);
      float* const run = to + (i - begin);
      if (walk.inner_stride(0) != 0) {
        load_run(input.x, at + column, length, run);
      } else {
        load_run(input.x, at, 1, run);
        std::fill_n(run + 1, length - 1, *run);
      }
      i += length;
    }
  }

  void execute(size_t index, int64_t begin, int64_t n) {
    const lk_pointwise_instruction& instruction = program_.instructions[index];
    const int32_t* const operands = instruction.operands;
    const float* const x = values_[operands[0]];
    float* const y = values_[program_.value_of(index)];
    switch (instruction.code) {
      case LK_POINTWISE_UNARY:
        return with_function(instruction.kind, instruction.a, instruction.b, [&](auto f) { apply(n, x, y, f); });
      case LK_POINTWISE_BINARY: return combine(instruction.kind, n, x, values_[operands[1]], y);
      case LK_POINTWISE_WHERE: return choose(n, x, values_[operands[1]], values_[operands[2]], y);
      case LK_POINTWISE_ROUND: return instruction.kind == LK_F16 ? round<Float16>(n, x, y) : round<BFloat16>(n, x, y);
      default: {
        const void* const step = program_.inputs[static_cast<size_t>(operands[1])].x.data;
        return round_at_random(instruction, *static_cast<const int32_t*>(step), begin, n, x, y);
      }
    }
  }

  const PointwiseProgram& program_;
  const PointwiseScalars scalars_;
  alignas(64) float values_[pointwise_max_values][block];
};

// What is to be reduced is stored first.
void reduce(Cpu& cpu, const lk_pointwise_params& p, const PointwiseProgram& program) {
  std::vector<Scratch<float>> held(program.outputs.size());
  const std::vector<lk_pointwise_output> outputs = stored_outputs(program, [&](size_t i) {
    held[i].take(cpu, program.count);
    return held[i].data();
  });
  lk_pointwise_params stored = p;
  stored.outputs = outputs.data();
  pointwise(cpu, stored);
  for (size_t i = 0; i < outputs.size(); ++i) {
    const lk_pointwise_output& output = program.outputs[i];
    if (output.reduction == LK_POINTWISE_SUM)
      reduce_sum(cpu, {.x = outputs[i].y, .y = output.y, .scale = output.scale});
    else if (output.reduction == LK_POINTWISE_MAX)
      reduce_max(cpu, {.x = outputs[i].y, .y = output.y});
  }
}

}  // namespace

void pointwise(Cpu& cpu, const lk_pointwise_params& p) {
  const PointwiseProgram program(p);
  if (program.reduces) return reduce(cpu, p, program);
  const int64_t blocks = (program.count + block - 1) / block;
  parallel_for(cpu, blocks, block * program.value_count(), [&](int64_t begin, int64_t end) {
    Interpreter interpreter(program);
    for (int64_t i = begin; i < end; ++i) interpreter.run(i * block, std::min(block, program.count - i * block));
  });
}

}  // namespace lk::cpu
