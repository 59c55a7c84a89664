// Programs of elementwise operations: drawn at random, they give the bits of the operations run one after the other;
// what may not be asked is refused.
#include <gtest/gtest.h>

#include <array>

#include "support/kernel_tensors.h"

namespace lk_test::kernels_pointwise_test {
namespace {

// A program and, beside it, the operations that it stands for, run by themselves.
class Program {
 public:
  Program(lk_context* context, Shape domain) : context_(context), domain_(std::move(domain)) {}

  int32_t input(const Tensor& tensor) {
    inputs.push_back({tensor.view(), {}, 0});
    apart_.push_back(tensor);
    return new_value();
  }
  int32_t codes(const Tensor& codes, const Tensor& scales, bool is_signed) {
    inputs.push_back({codes.view(), scales.view(), is_signed});
    apart_.emplace_back(domain_, LK_F32);
    const lk_dequantize_blockwise_params p{
        .codes = codes.view(), .scales = scales.view(), .y = apart_.back().view(), .is_signed = is_signed};
    EXPECT_EQ(lk_dequantize_blockwise(context_, &p), LK_OK) << lk_last_error(context_);
    return new_value();
  }
  int32_t unary(lk_unary_kind kind, int32_t x, float a = 0, float b = 0) {
    instructions.push_back({.code = LK_POINTWISE_UNARY, .kind = kind, .operands = {x}, .a = a, .b = b});
    apart_.emplace_back(shape_of(x), LK_F32);
    const lk_unary_params p{.kind = kind, .a = a, .b = b, .x = view(x), .y = apart_.back().view()};
    EXPECT_EQ(lk_unary(context_, &p), LK_OK) << lk_last_error(context_);
    return new_value();
  }
  int32_t binary(lk_binary_kind kind, int32_t a, int32_t b) {
    instructions.push_back({.code = LK_POINTWISE_BINARY, .kind = kind, .operands = {a, b}});
    apart_.emplace_back(together({a, b}), LK_F32);
    const lk_binary_params p{.kind = kind, .a = view(a), .b = view(b), .y = apart_.back().view()};
    EXPECT_EQ(lk_binary(context_, &p), LK_OK) << lk_last_error(context_);
    return new_value();
  }
  int32_t where(int32_t condition, int32_t a, int32_t b) {
    instructions.push_back({.code = LK_POINTWISE_WHERE, .operands = {condition, a, b}});
    apart_.emplace_back(together({condition, a, b}), LK_F32);
    const lk_where_params p{.condition = view(condition), .a = view(a), .b = view(b), .y = apart_.back().view()};
    EXPECT_EQ(lk_where(context_, &p), LK_OK) << lk_last_error(context_);
    return new_value();
  }
  int32_t rounded(lk_dtype dtype, int32_t x) {
    instructions.push_back({.code = LK_POINTWISE_ROUND, .kind = dtype, .operands = {x}});
    apart_.emplace_back(shape_of(x), dtype);
    const lk_cast_params p{.x = view(x), .y = apart_.back().view()};
    EXPECT_EQ(lk_cast(context_, &p), LK_OK) << lk_last_error(context_);
    return new_value();
  }
  int32_t at_random(int32_t x, int32_t step, uint64_t seed, uint64_t stream) {
    instructions.push_back({.code = LK_POINTWISE_STOCHASTIC, .operands = {x, step}, .seed = seed, .stream = stream});
    apart_.emplace_back(domain_, LK_BF16);
    const lk_round_stochastic_params p{
        .x = view(x), .step = view(step), .y = apart_.back().view(), .seed = seed, .stream = stream};
    EXPECT_EQ(lk_round_stochastic(context_, &p), LK_OK) << lk_last_error(context_);
    return new_value();
  }

  // Results; each is made in both ways.
  void output(int32_t value, lk_dtype dtype) {
    results_.push_back({Tensor(domain_, dtype), Tensor(domain_, dtype)});
    outputs.push_back({value, results_.back()[0].view(), {}, 0, LK_POINTWISE_STORE, 1});
    const Tensor all = full(value);
    const lk_cast_params p{.x = all.view(), .y = results_.back()[1].view()};
    EXPECT_EQ(lk_cast(context_, &p), LK_OK) << lk_last_error(context_);
  }
  void output_codes(int32_t value, bool is_signed) {
    const Shape blocks{(count_of(domain_) + 255) / 256};
    results_.push_back({Tensor(domain_, LK_U8), Tensor(domain_, LK_U8)});
    results_.push_back({Tensor(blocks, LK_F32), Tensor(blocks, LK_F32)});
    const auto& codes = results_[results_.size() - 2];
    const auto& scales = results_.back();
    outputs.push_back({value, codes[0].view(), scales[0].view(), is_signed, LK_POINTWISE_STORE, 1});
    const Tensor all = full(value);
    const lk_quantize_blockwise_params p{
        .x = all.view(), .codes = codes[1].view(), .scales = scales[1].view(), .is_signed = is_signed};
    EXPECT_EQ(lk_quantize_blockwise(context_, &p), LK_OK) << lk_last_error(context_);
  }

  // As results, with `axes` of 1, that are near to what lk_reduce_sum or lk_reduce_max gives.
  void reduced(int32_t value, const std::vector<size_t>& axes, lk_pointwise_reduction reduction, float scale = 1,
               lk_dtype type = LK_F32) {
    Shape shape = domain_;
    for (const size_t axis : axes) shape[axis] = 1;
    reduced_.push_back({Tensor(shape, type), Tensor(shape, type)});
    const lk_tensor y = reduced_.back()[0].view(), apart = reduced_.back()[1].view();
    outputs.push_back({value, y, {}, 0, reduction, scale});
    const Tensor all = full(value);
    if (reduction == LK_POINTWISE_SUM) {
      const lk_reduce_sum_params p{.x = all.view(), .y = apart, .scale = scale};
      EXPECT_EQ(lk_reduce_sum(context_, &p), LK_OK) << lk_last_error(context_);
    } else {
      const lk_reduce_max_params p{.x = all.view(), .y = apart};
      EXPECT_EQ(lk_reduce_max(context_, &p), LK_OK) << lk_last_error(context_);
    }
  }

  lk_pointwise_params params() const {
    lk_pointwise_params p{.inputs = inputs.data(),
                          .instructions = instructions.data(),
                          .outputs = outputs.data(),
                          .input_count = static_cast<int32_t>(inputs.size()),
                          .instruction_count = static_cast<int32_t>(instructions.size()),
                          .output_count = static_cast<int32_t>(outputs.size()),
                          .rank = static_cast<int32_t>(domain_.size()),
                          .dims = {}};
    std::ranges::copy(domain_, p.dims);
    return p;
  }
  void expect_equal_bits() const {
    const lk_pointwise_params p = params();
    ASSERT_EQ(lk_pointwise(context_, &p), LK_OK) << lk_last_error(context_);
    for (size_t i = 0; i < results_.size(); ++i)
      ASSERT_EQ(results_[i][0].bytes(), results_[i][1].bytes()) << "result " << i;
    for (size_t i = 0; i < reduced_.size(); ++i) {
      SCOPED_TRACE("reduction " + std::to_string(i));
      const Values got = reduced_[i][0].load(context_), want = reduced_[i][1].load(context_);
      expect_near("reduction", got, want, reduced_[i][0].view().dtype,
                  count_of(domain_) / static_cast<int64_t>(want.size()));
    }
  }

  const Tensor& reduction(size_t i) const { return reduced_[i][0]; }
  const Tensor& result(size_t i) const { return results_[i][1]; }

  std::vector<lk_pointwise_input> inputs;
  std::vector<lk_pointwise_instruction> instructions;
  std::vector<lk_pointwise_output> outputs;

 private:
  int32_t new_value() const { return static_cast<int32_t>(apart_.size()) - 1; }
  lk_tensor view(int32_t value) const { return apart_[static_cast<size_t>(value)].view(); }
  Shape shape_of(int32_t value) const {
    const lk_tensor x = view(value);
    return Shape(x.dims, x.dims + x.rank);
  }
  Shape together(std::initializer_list<int32_t> values) const {
    int32_t rank = 0;
    for (const int32_t value : values) rank = std::max(rank, view(value).rank);
    Shape shape(static_cast<size_t>(rank), 1);
    for (const int32_t value : values) {
      const lk_tensor x = view(value);
      for (int32_t i = 0; i < x.rank; ++i) {
        int64_t& dim = shape[static_cast<size_t>(rank - x.rank + i)];
        dim = std::max(dim, x.dims[i]);
      }
    }
    return shape;
  }
  Tensor full(int32_t value) const {  // repeated to the whole shape
    if (count_of(shape_of(value)) == count_of(domain_)) return apart_[static_cast<size_t>(value)];
    Tensor y(domain_, view(value).dtype);
    const Tensor zeros(domain_, LK_F32);
    const lk_fill_params fill{.y = zeros.view(), .value = 0};
    EXPECT_EQ(lk_fill(context_, &fill), LK_OK);
    const lk_binary_params p{.kind = LK_ADD, .a = zeros.view(), .b = view(value), .y = y.view()};
    EXPECT_EQ(lk_binary(context_, &p), LK_OK) << lk_last_error(context_);
    return y;
  }

  lk_context* context_;
  Shape domain_;
  std::vector<Tensor> apart_;
  std::vector<std::array<Tensor, 2>> results_, reduced_;
};

class KernelsPointwise : public Kernels {
 protected:
  Tensor drawn(const Shape& shape, lk_dtype dtype = LK_F32, double low = -2, double high = 2) {
    return random_tensor(context.get(), random, shape, dtype, low, high);
  }
  Tensor copied(const Tensor& x) {
    const lk_tensor view = x.view();
    Tensor y(Shape(view.dims, view.dims + view.rank), view.dtype);
    const std::vector<unsigned char> bytes = x.bytes();
    y.write(bytes.data(), 0, static_cast<int64_t>(bytes.size()));
    return y;
  }
  int draw(int count) { return static_cast<int>(random() % static_cast<unsigned>(count)); }
};

// Inputs of every type and way of repeating, every function, values that stay finite.
TEST_F(KernelsPointwise, RandomProgramsHaveTheBitsOfTheirOperations) {
  const Shape domains[] = {{1}, {7}, {256}, {5003}, {3, 31, 33}, {4, 24, 40}, {2, 3, 5, 8}};
  const lk_dtype types[] = {LK_F32, LK_F16, LK_BF16};
  for (int round = 0; round < 28; ++round) {
    const Shape& domain = domains[round % 7];
    SCOPED_TRACE(round);
    Program program(context.get(), domain);
    std::vector<int32_t> values;
    for (int i = 0; i < 6; ++i) {
      Shape shape = domain;
      if (i == 1) shape.assign(1, 1);
      if (i > 1)
        for (int64_t& dim : shape) dim = draw(3) == 0 ? 1 : dim;
      if (i == 5) shape.erase(shape.begin(), shape.end() - 1);
      values.push_back(program.input(drawn(shape, types[i < 2 ? 0 : draw(3)])));
    }
    const auto any = [&] { return values[static_cast<size_t>(draw(static_cast<int>(values.size())))]; };
    // Into [-2, 2], away from zero where a function needs it.
    const auto bounded = [&](int32_t x) { return program.unary(LK_CLAMP, x, -2, 2); };
    const auto positive = [&](int32_t x) { return program.unary(LK_CLAMP, program.unary(LK_ABS, x), 0.125f, 2); };
    for (int i = 0; i < 9; ++i) {
      const int32_t x = any();
      switch (draw(7)) {
        case 0: {
          const lk_unary_kind kind = draw(LK_ROUND + 1);
          const bool root = kind == LK_SQRT || kind == LK_RSQRT || kind == LK_LOG;
          values.push_back(bounded(program.unary(kind, root ? positive(x) : x, -0.75f, 0.5f)));
          break;
        }
        case 1: values.push_back(program.binary(LK_DIV, x, positive(any()))); break;
        case 2: values.push_back(program.where(program.binary(LK_LESS, any(), any()), x, any())); break;
        case 3: values.push_back(program.rounded(draw(2) == 0 ? LK_F16 : LK_BF16, x)); break;
        // A product and the sum that reads it: a contraction would show.
        case 4: values.push_back(bounded(program.binary(LK_ADD, program.binary(LK_MUL, x, any()), any()))); break;
        case 5: values.push_back(bounded(program.unary(LK_AFFINE, program.unary(LK_SQUARE, x), 1, 0.3f))); break;
        default: values.push_back(bounded(program.binary(draw(LK_GREATER + 1) % 3, x, any())));
      }
    }
    for (int i = 0; i < 4; ++i) program.output(values[values.size() - 1 - static_cast<size_t>(i)], types[draw(3)]);
    program.output(program.binary(LK_LESS, any(), any()), LK_I32);
    program.output_codes(bounded(values.back()), draw(2) == 0);
    program.expect_equal_bits();
  }
}

TEST_F(KernelsPointwise, EveryFunctionHasTheBitsOfItsOperation) {
  const Shape domain{1000};
  for (const bool scalar : {false, true}) {
    for (lk_unary_kind first = LK_SILU; first <= LK_ROUND; first += 10) {
      Program program(context.get(), domain);
      const int32_t x = program.input(drawn(scalar ? Shape{1} : domain, LK_F32, 0.01, 3));
      const int32_t y = program.input(drawn(domain));
      int32_t sum = y;
      for (lk_unary_kind kind = first; kind < first + 10 && kind <= LK_ROUND; ++kind) {
        const int32_t f = program.unary(kind, x, 0.5f, 1.5f);
        sum = program.binary(LK_ADD, f, sum);  // reads what the function ends with
        if (kind - first < 9) program.output(f, LK_F32);
      }
      program.output(sum, LK_F32);
      program.expect_equal_bits();
    }
  }
}

TEST_F(KernelsPointwise, ComparisonsAndChoicesHaveTheirBits) {
  const Shape domain{999};
  Program program(context.get(), domain);
  const int32_t a = program.input(drawn(domain)), b = program.input(drawn({1}));
  for (lk_binary_kind kind = LK_ADD; kind <= LK_GREATER; ++kind) program.output(program.binary(kind, a, b), LK_F32);
  program.expect_equal_bits();
}

TEST_F(KernelsPointwise, CodesAndRandomRoundingHaveTheirBits) {
  for (const int64_t count : {int64_t{1}, int64_t{255}, int64_t{512}, int64_t{20011}}) {
    const Shape domain{count}, blocks{(count + 255) / 256};
    Program program(context.get(), domain);
    const Tensor codes(domain, LK_U8), scales = drawn(blocks, LK_F32, 0.5, 2), step = integers({1}, {17});
    std::vector<unsigned char> bytes(static_cast<size_t>(count));
    for (unsigned char& code : bytes) code = static_cast<unsigned char>(random());
    codes.write(bytes.data(), 0, count);
    const int32_t g = program.input(drawn(domain)), m = program.codes(codes, scales, true);
    const int32_t v = program.codes(codes, scales, false), t = program.input(step);
    const int32_t sum = program.binary(LK_ADD, program.unary(LK_AFFINE, m, 0.9f), program.unary(LK_AFFINE, g, 0.1f));
    program.output_codes(sum, true);
    program.output_codes(program.binary(LK_MAX, v, program.unary(LK_SQUARE, g)), false);
    program.output(program.at_random(sum, t, 5, 3), LK_BF16);
    program.output(program.unary(LK_AFFINE, program.at_random(sum, t, uint64_t{1} << 40, 3), 2), LK_F32);
    program.output(program.unary(LK_AFFINE, g, 300), LK_U8);
    program.output(program.unary(LK_AFFINE, g, 3e9f), LK_I32);
    program.expect_equal_bits();
  }
}

// Sums and largest elements beside results of every element, over shapes that one task or many make, in rows that fill
// a warp or do not; the last ones store what they reduce. Their order does not change from run to run.
TEST_F(KernelsPointwise, ReductionsAreThoseOfTheStoredValues) {
  const Shape shapes[] = {{3, 31, 33},  {2, 16, 3072}, {5, 3001, 16}, {40, 2, 8},
                          {1, 700, 40}, {7, 1, 5000},  {2, 901, 1000}};
  for (const Shape& domain : shapes) {
    SCOPED_TRACE(domain[1]);
    Program program(context.get(), domain);
    const int32_t x = program.input(drawn(domain)), row = program.input(drawn({domain[0], domain[1], 1}));
    const int32_t column = program.input(drawn({domain[0], 1, domain[2]}));
    const int32_t each = program.input(drawn({domain[0], 1, 1}));
    const int32_t factor = program.binary(LK_MUL, program.binary(LK_ADD, row, each), column);
    const int32_t y = program.binary(LK_MUL, x, factor), square = program.unary(LK_SQUARE, y);
    program.reduced(square, {2}, LK_POINTWISE_SUM, 0.25f);
    program.reduced(square, {1}, LK_POINTWISE_SUM);
    program.reduced(y, {1, 2}, LK_POINTWISE_MAX);
    program.output(y, LK_F32);
    program.expect_equal_bits();
    const auto first = program.reduction(1).bytes();
    program.expect_equal_bits();
    EXPECT_EQ(program.reduction(1).bytes(), first);

    for (const std::vector<size_t>& axes : std::vector<std::vector<size_t>>{{0, 1, 2}, {1, 2}, {2}, {0}, {0, 2}}) {
      Program one(context.get(), domain);
      const int32_t v = one.input(drawn(domain));
      one.reduced(one.unary(LK_ABS, v), axes, LK_POINTWISE_SUM);
      one.reduced(v, axes, LK_POINTWISE_MAX);
      one.expect_equal_bits();
    }
  }
  Program flat(context.get(), {300007});
  const int32_t v = flat.input(drawn({300007}));
  flat.reduced(v, {0}, LK_POINTWISE_SUM);
  flat.reduced(flat.unary(LK_ABS, v), {0}, LK_POINTWISE_SUM);
  flat.output(flat.unary(LK_AFFINE, v, 2), LK_BF16);
  flat.expect_equal_bits();
}

// The last task to arrive finishes a sum: tasks of another branch are none of its own.
TEST_F(KernelsPointwise, ReductionsOfBranchesDoNotMeet) {
  std::vector<Program> programs;
  std::vector<std::vector<unsigned char>> alone;
  for (int i = 0; i < 8; ++i) {
    Program& program = programs.emplace_back(context.get(), Shape{3, 700, 3072});
    const int32_t x = program.input(drawn({3, 700, 3072}));
    program.reduced(program.unary(LK_SQUARE, x), {1}, LK_POINTWISE_SUM);
    program.reduced(x, {1, 2}, LK_POINTWISE_SUM);
    program.expect_equal_bits();
    alone.push_back(program.reduction(0).bytes());
  }
  for (int turn = 0; turn < 5; ++turn) {
    ASSERT_EQ(lk_fork(context.get(), 8), LK_OK) << lk_last_error(context.get());
    for (int32_t i = 0; i < 8; ++i) {
      ASSERT_EQ(lk_branch(context.get(), i), LK_OK);
      const lk_pointwise_params p = programs[static_cast<size_t>(i)].params();
      ASSERT_EQ(lk_pointwise(context.get(), &p), LK_OK) << lk_last_error(context.get());
    }
    ASSERT_EQ(lk_join(context.get()), LK_OK) << lk_last_error(context.get());
    for (size_t i = 0; i < 8; ++i) EXPECT_EQ(programs[i].reduction(0).bytes(), alone[i]) << "branch " << i;
  }
}

// More kinds of results than a block has memory for, were it not the same for all.
TEST_F(KernelsPointwise, SumsAndLargestOfEveryTypeAreOneProgram) {
  Program program(context.get(), {700, 1000});
  const int32_t x = program.input(drawn({700, 1000}));
  for (const lk_dtype type : {LK_F32, LK_F16, LK_BF16}) {
    program.reduced(x, {0}, LK_POINTWISE_SUM, 1, type);
    program.reduced(x, {0}, LK_POINTWISE_MAX, 1, type);
  }
  program.expect_equal_bits();
}

TEST_F(KernelsPointwise, LargestOfNanIsNan) {
  Tensor x = drawn({3, 400});
  x.put(801, std::numeric_limits<float>::quiet_NaN());
  Program program(context.get(), {3, 400});
  const int32_t v = program.input(x);
  program.reduced(program.unary(LK_AFFINE, v, 2), {1}, LK_POINTWISE_MAX);
  const lk_pointwise_params p = program.params();
  ASSERT_EQ(lk_pointwise(context.get(), &p), LK_OK) << lk_last_error(context.get());
  const Values largest = program.reduction(0).load(context.get());
  EXPECT_FALSE(std::isnan(largest[0]));
  EXPECT_FALSE(std::isnan(largest[1]));
  EXPECT_TRUE(std::isnan(largest[2]));
}

TEST_F(KernelsPointwise, ResultsMayStandInThePlaceOfInputs) {
  constexpr int64_t count = 5003;
  const Tensor p = drawn({count}), m = drawn({count}, LK_BF16), codes({count}, LK_U8), scales({20}, LK_F32);
  const lk_quantize_blockwise_params start{
      .x = p.view(), .codes = codes.view(), .scales = scales.view(), .is_signed = 1};
  ASSERT_EQ(lk_quantize_blockwise(context.get(), &start), LK_OK);
  Program program(context.get(), {count});
  const int32_t from_p = program.input(p), from_m = program.input(m), from_codes = program.codes(codes, scales, true);
  const int32_t sum = program.binary(LK_ADD, program.binary(LK_ADD, from_p, from_m), from_codes);
  program.output(sum, LK_F32);
  program.output(program.binary(LK_MUL, from_p, sum), LK_BF16);
  program.output_codes(sum, true);
  program.outputs[0].y = p.view(), program.outputs[1].y = m.view();
  program.outputs[2].y = codes.view(), program.outputs[2].scales = scales.view();
  const lk_pointwise_params in_place = program.params();
  Program apart(context.get(), {count});
  const Tensor p_before = copied(p), m_before = copied(m), codes_before = copied(codes), scales_before = copied(scales);
  const int32_t q = apart.input(p_before), n = apart.input(m_before),
                c = apart.codes(codes_before, scales_before, true);
  const int32_t total = apart.binary(LK_ADD, apart.binary(LK_ADD, q, n), c);
  apart.output(total, LK_F32);
  apart.output(apart.binary(LK_MUL, q, total), LK_BF16);
  apart.output_codes(total, true);
  apart.expect_equal_bits();
  ASSERT_EQ(lk_pointwise(context.get(), &in_place), LK_OK) << lk_last_error(context.get());
  EXPECT_EQ(p.bytes(), apart.result(0).bytes());
  EXPECT_EQ(m.bytes(), apart.result(1).bytes());
  EXPECT_EQ(codes.bytes(), apart.result(2).bytes());
  EXPECT_EQ(scales.bytes(), apart.result(3).bytes());
}

TEST_F(KernelsPointwise, BadProgramsAreRefused) {
  const Tensor x({6}, LK_F32), y({6}, LK_F32), other({5}, LK_F32), small({1}, LK_F32), codes({6}, LK_U8);
  const auto refused = [&](const std::string& text, const auto& change) {
    Program program(context.get(), {6});
    const int32_t a = program.input(x);
    program.input(small);
    program.unary(LK_ABS, a);
    program.output(2, LK_F32);
    program.outputs[0].y = y.view();
    change(program);
    const lk_pointwise_params p = program.params();
    EXPECT_EQ(lk_pointwise(context.get(), &p), LK_E_INVALID);
    EXPECT_STREQ(lk_last_error(context.get()), ("pointwise: " + text).c_str());
  };
  refused("instructions[0].operands: expected 0 to 1, found 2", [](Program& p) { p.instructions[0].operands[0] = 2; });
  refused("instructions[0].code: expected 0 to 4, found 5", [](Program& p) { p.instructions[0].code = 5; });
  refused("instructions[0].kind: expected 0 to 20, found 21", [](Program& p) { p.instructions[0].kind = 21; });
  refused("instructions[0].operands: expected a step, i32 [1], found f32 [1]", [](Program& p) {
    p.instructions[0].code = LK_POINTWISE_STOCHASTIC;
    p.instructions[0].operands[1] = 1;
  });
  refused("outputs[0].value: expected 0 to 2, found 3", [](Program& p) { p.outputs[0].value = 3; });
  refused("inputs[1]: expected a shape that broadcasts to the outputs' [6], found [5]",
          [&](Program& p) { p.inputs[1].x = other.view(); });
  refused("inputs[1]: expected u8, found f32", [&](Program& p) { p.inputs[1].scales = small.view(); });
  refused("outputs[0]'s scales: expected no overlap with inputs[1], found shared memory", [&](Program& p) {
    p.outputs[0].y = codes.view();
    p.outputs[0].scales = small.view();
    p.inputs[1].x.rank = 1;
    p.inputs[1].x.dtype = LK_BF16;
  });
  refused("outputs[1]: expected no overlap with outputs[0], found shared memory",
          [](Program& p) { p.outputs.push_back(p.outputs[0]); });
  refused("outputs[0]: expected no overlap with inputs[0], found shared memory", [&](Program& p) {
    p.outputs[0].y = x.view();
    p.outputs[0].y.dtype = LK_BF16;
  });
  refused("outputs[0]: expected 1 or the same size on every axis of [6], found [5]", [&](Program& p) {
    p.outputs[0].y = other.view();
    p.outputs[0].reduction = LK_POINTWISE_SUM;
  });
  refused("outputs: expected no reduction in a program with codes or with rounding at random, found one",
          [&](Program& p) {
            p.outputs[0].y = small.view();
            p.outputs[0].reduction = LK_POINTWISE_MAX;
            p.inputs[1] = {codes.view(), small.view(), 1};
          });
  refused("outputs[0]: expected no overlap with inputs[1], found shared memory", [&](Program& p) {
    p.outputs[0].y = small.view();
    p.outputs[0].reduction = LK_POINTWISE_SUM;
  });
  refused("input_count: expected 1 to 24, found 0", [](Program& p) { p.inputs.clear(); });
  refused("output_count: expected 1 to 12, found 0", [](Program& p) { p.outputs.clear(); });
}

}  // namespace

}  // namespace lk_test::kernels_pointwise_test
