// Operands that lie in lines (lora_kernels.h): an operation gives what it gives for dense ones and writes nothing
// between the lines, for every operand that may, alone and with the others, aligned for a GPU's wide loads and not.
// Operands that may not are refused.
#include <gmock/gmock.h>

#include "support/kernel_cases.h"

namespace lk_test::kernels_lines_test {
namespace {

using ::testing::HasSubstr;

// A tensor in the columns of a wider matrix: its last `axes` axes are a line, `before` columns in front of it.
class InLines {
 public:
  InLines(lk_context* context, const Tensor& dense, int axes, int64_t before, int64_t behind)
      : dense_(dense), before_(before), whole_(wide_shape(dense.view(), axes, before, behind), dense.view().dtype) {
    const lk_tensor from = dense.view();
    for (int i = from.rank - axes; i < from.rank; ++i) line_ *= from.dims[i];
    pitch_ = whole_.view().dims[1];
    whole_.store(context, Values(static_cast<size_t>(whole_.view().dims[0] * pitch_), 7.0));
    copy(context, from, view());
  }

  lk_tensor view() const {
    lk_tensor t = dense_.view();
    t.data = static_cast<char*>(whole_.view().data) + before_ * lk_dtype_size(t.dtype);
    int64_t next = 1;
    for (int32_t i = t.rank - 1; i >= 0; --i) {
      t.strides[i] = next;
      next = next * t.dims[i] == line_ ? pitch_ : next * t.dims[i];
    }
    return t;
  }
  Values values(lk_context* context) const {
    const lk_tensor like = dense_.view();
    const Tensor dense(Shape(like.dims, like.dims + like.rank), like.dtype);
    copy(context, view(), dense.view());
    return dense.load(context);
  }
  void expect_gaps_untouched(lk_context* context, const std::string& what) const {
    const Values all = whole_.load(context);
    for (size_t i = 0; i < all.size(); ++i) {
      const int64_t column = static_cast<int64_t>(i) % pitch_ - before_;
      if (column < 0 || column >= line_) {
        ASSERT_EQ(all[i], 7.0) << what << ": written between lines, at element " << i;
      }
    }
  }

 private:
  static Shape wide_shape(const lk_tensor& t, int axes, int64_t before, int64_t behind) {
    int64_t rows = 1, line = 1;
    for (int i = 0; i < t.rank; ++i) (i < t.rank - axes ? rows : line) *= t.dims[i];
    return {rows, before + line + behind};
  }
  static void copy(lk_context* context, const lk_tensor& x, const lk_tensor& y) {
    lk_copy_block_params p{};
    p.x = x, p.y = y;
    std::copy(x.dims, x.dims + x.rank, p.extent);
    ASSERT_EQ(lk_copy_block(context, &p), LK_OK) << lk_last_error(context);
  }

  Tensor dense_;
  int64_t before_, line_ = 1, pitch_ = 0;
  Tensor whole_;
};

// An operation: shapes of its operands, how many of their last axes a line may have, and the call. Outputs come last.
struct Operation {
  std::string name;
  std::vector<Shape> operands;
  size_t inputs;
  int axes;
  std::function<lk_status(lk_context*, const Views&)> run;
  std::vector<size_t> dense = {};  // operands that may not lie in lines
  int64_t depth = 0;  // of its sums, where another kernel may run for lines; 0: the same, with the same bits
};

Operation attention(int64_t batch, int64_t queries, int64_t keys, int64_t heads, int64_t width, bool lengths = false) {
  const Shape q{batch, queries, heads, width}, k{batch, keys, heads, width};
  const Tensor lse(Shape{batch, heads, queries}, LK_F32), counts(Shape{batch}, LK_I32);
  for (int64_t b = 0; b < batch; ++b) counts.put<int32_t>(b, static_cast<int32_t>(keys - b - 1));
  return {"attention " + std::to_string(queries) + " x " + std::to_string(keys) + " of " + std::to_string(width) +
              (lengths ? " lengths" : ""),
          {q, k, k, q, q, q, k, k},
          4,
          2,
          [=](lk_context* context, const Views& v) {
            lk_attention_backward_params p{};
            p.q = v[0], p.k = v[1], p.v = v[2], p.d_o = v[3], p.o = v[4], p.dq = v[5], p.dk = v[6], p.dv = v[7];
            p.lse = lse.view(), p.scale = 0.5f;
            if (lengths) p.key_lengths = counts.view();
            return run_attention(context, p);
          },
          {},
          keys};
}

// Of heads of a position, of whole images, and of single heads.
void add_rms_norm_rope(std::vector<Operation>& all, const Shape& shape, bool interleaved) {
  const auto angles = std::make_shared<const Angles>(reference::Rope{shape, false, interleaved});
  const Shape weight{shape.back()};
  for (const int axes : {2, 3, 1}) {
    const std::string name = " of lines of " + std::to_string(axes) + (interleaved ? ", neighbours" : ", halves");
    all.push_back({"rms_norm_rope" + name,
                   {shape, weight, shape},
                   2,
                   axes,
                   [=](lk_context* context, const Views& v) {
                     return call(lk_rms_norm_rope, context,
                                 {.x = v[0],
                                  .weight = v[1],
                                  .cos = angles->cos.view(),
                                  .sin = angles->sin.view(),
                                  .y = v[2],
                                  .eps = 1e-6f,
                                  .interleaved = interleaved});
                   },
                   {1}});
    all.push_back({"rms_norm_rope_backward" + name,
                   {shape, shape, weight, shape},
                   3,
                   axes,
                   [=](lk_context* context, const Views& v) {
                     return call(lk_rms_norm_rope_backward, context,
                                 {.dy = v[0],
                                  .x = v[1],
                                  .weight = v[2],
                                  .cos = angles->cos.view(),
                                  .sin = angles->sin.view(),
                                  .eps = 1e-6f,
                                  .interleaved = interleaved,
                                  .dx = v[3]});
                   },
                   {2}});
  }
}

std::vector<Operation> operations() {
  const Shape rows{2, 33, 4, 16}, matrix{2, 33, 72}, odd{2, 9, 5, 3}, wide{2, 3, 2104};
  std::vector<Operation> all;
  for (const Shape& shape : {rows, matrix, odd, wide}) {
    const Shape last{shape.back()};
    const int axes = static_cast<int>(shape.size()) - 2;
    const int64_t depth =
        shape == wide ? wide.back() : 0;  // wide rows in a block of their own, unless they lie in lines
    all.push_back({"rms_norm",
                   {shape, last, shape},
                   2,
                   axes,
                   [](lk_context* context, const Views& v) {
                     return call(lk_rms_norm, context, {.x = v[0], .weight = v[1], .y = v[2], .eps = 1e-6f});
                   },
                   {1},
                   depth});
    for (const bool sums : {false, true})
      all.push_back({sums ? "rms_norm_backward with dweight" : "rms_norm_backward",
                     {shape, shape, last, shape, last},
                     3,
                     axes,
                     [=](lk_context* context, const Views& v) {
                       return call(lk_rms_norm_backward, context,
                                   {.dy = v[0],
                                    .x = v[1],
                                    .weight = v[2],
                                    .eps = 1e-6f,
                                    .dx = v[3],
                                    .dweight = sums ? v[4] : lk_tensor{}});
                     },
                     {2, 4},
                     sums ? 0 : depth});
    for (const lk_unary_kind kind : {LK_GELU_TANH, LK_SIN}) {
      all.push_back({"unary", {shape, shape}, 1, axes, [=](lk_context* context, const Views& v) {
                       return call(lk_unary, context, {.kind = kind, .a = 0, .b = 0, .x = v[0], .y = v[1]});
                     }});
      all.push_back({"unary_backward", {shape, shape, shape}, 2, axes, [=](lk_context* context, const Views& v) {
                       return call(lk_unary_backward, context,
                                   {.kind = kind, .a = 0, .b = 0, .dy = v[0], .x = v[1], .dx = v[2]});
                     }});
    }
    for (const lk_unary_kind kind : {LK_SILU, LK_SIGMOID}) {
      all.push_back({"gated_activation", {shape, shape, shape}, 2, axes, [=](lk_context* context, const Views& v) {
                       return call(lk_gated_activation, context, {.kind = kind, .a = v[0], .b = v[1], .y = v[2]});
                     }});
      all.push_back({"gated_activation_backward",
                     {shape, shape, shape, shape, shape},
                     3,
                     axes,
                     [=](lk_context* context, const Views& v) {
                       return call(lk_gated_activation_backward, context,
                                   {.kind = kind, .dy = v[0], .a = v[1], .b = v[2], .da = v[3], .db = v[4]});
                     }});
    }
    all.push_back({"copy_block", {shape, shape}, 1, axes, [=](lk_context* context, const Views& v) {
                     lk_copy_block_params p{};
                     p.x = v[0], p.y = v[1];
                     for (size_t i = 0; i < shape.size(); ++i)
                       p.extent[i] = shape[i] - (i == 1), p.x_offset[i] = i == 1;
                     return call(lk_copy_block, context, p);
                   }});
  }
  for (const bool interleaved : {true, false})
    for (const int64_t width : {16, 6, 128}) add_rms_norm_rope(all, {2, 9, 5, width}, interleaved);
  all.push_back(attention(2, 33, 65, 2, 32));
  all.push_back(attention(1, 130, 520, 27, 64));  // own kernels of capability 9.0
  all.push_back(attention(2, 130, 270, 23, 128));
  all.push_back(attention(1, 130, 130, 2, 128));
  all.push_back(attention(2, 33, 65, 2, 32, true));
  all.push_back(attention(2, 130, 77, 3, 64));  // own kernels for few keys
  all.push_back(attention(2, 130, 77, 3, 64, true));
  return all;
}

class KernelLines : public testing::TestWithParam<lk_dtype> {
 protected:
  Context context = make_context();
  std::mt19937 random{47};

  std::vector<Tensor> operands_of(const Operation& op) {
    std::vector<Tensor> tensors;
    for (size_t i = 0; i < op.operands.size(); ++i)
      tensors.push_back(i < op.inputs ? random_tensor(context.get(), random, op.operands[i], GetParam(), -1, 1)
                                      : Tensor(op.operands[i], GetParam()));
    for (size_t i = op.inputs; i < tensors.size(); ++i)
      tensors[i].store(context.get(), Values(static_cast<size_t>(count_of(op.operands[i])), 0.25));
    return tensors;
  }
};

TEST_P(KernelLines, GiveWhatDenseOperandsGive) {
  for (const Operation& op : operations()) {
    SCOPED_TRACE(op.name + " of " + std::to_string(op.operands[0].back()));
    const std::vector<Tensor> tensors = operands_of(op);
    Views dense;
    for (const Tensor& t : tensors) dense.push_back(t.view());
    ASSERT_EQ(op.run(context.get(), dense), LK_OK) << lk_last_error(context.get());
    std::vector<Values> want;
    for (const Tensor& t : tensors) want.push_back(t.load(context.get()));
    // Each operand alone, and all of them.
    for (size_t which = 0; which <= tensors.size(); ++which) {
      if (std::ranges::count(op.dense, which) > 0) continue;
      for (const auto& [before, behind] : {std::pair<int64_t, int64_t>{8, 16}, {1, 2}}) {
        const std::vector<Tensor> fresh = [&] {
          std::vector<Tensor> copies;
          for (size_t i = 0; i < tensors.size(); ++i) {
            copies.emplace_back(op.operands[i], GetParam());
            copies[i].store(context.get(),
                            i < op.inputs ? want[i] : Values(static_cast<size_t>(count_of(op.operands[i])), 0.25));
          }
          return copies;
        }();
        std::vector<std::unique_ptr<InLines>> lines(fresh.size());
        Views views;
        for (size_t i = 0; i < fresh.size(); ++i) {
          const bool apart = (which == i || which == fresh.size()) && std::ranges::count(op.dense, i) == 0;
          if (apart) lines[i] = std::make_unique<InLines>(context.get(), fresh[i], op.axes, before, behind);
          views.push_back(apart ? lines[i]->view() : fresh[i].view());
        }
        const std::string what =
            op.name + ", operand " + std::to_string(which) + ", " + std::to_string(before) + " before";
        ASSERT_EQ(op.run(context.get(), views), LK_OK) << what << ": " << lk_last_error(context.get());
        for (size_t i = 0; i < fresh.size(); ++i) {
          const Values got = lines[i] ? lines[i]->values(context.get()) : fresh[i].load(context.get());
          if (op.depth == 0) {
            EXPECT_EQ(got, want[i]) << what << ", value of operand " << i;
          } else {
            expect_near(what + ", value of operand " + std::to_string(i), got, want[i], GetParam(), op.depth, 6);
          }
          if (lines[i]) lines[i]->expect_gaps_untouched(context.get(), what);
        }
        if (HasFailure()) return;
      }
    }
  }
}

TEST_P(KernelLines, AreRefusedWhereAKernelHasNone) {
  const Tensor x = random_tensor(context.get(), random, {4, 6, 16}, GetParam(), -1, 1), y(Shape{4, 6, 16}, GetParam());
  const InLines apart(context.get(), x, 1, 8, 8);
  EXPECT_EQ(call(lk_softmax, context.get(), {.x = apart.view(), .y = y.view()}), LK_E_INVALID);
  EXPECT_THAT(lk_last_error(context.get()), HasSubstr("softmax: x: expected dense, found strides [192, 32, 1]"));
  lk_tensor twisted = x.view();
  twisted.strides[0] = 16, twisted.strides[1] = 64, twisted.strides[2] = 1;
  EXPECT_EQ(call(lk_unary, context.get(), {.kind = LK_GELU_TANH, .a = 0, .b = 0, .x = twisted, .y = y.view()}),
            LK_E_INVALID);
  EXPECT_THAT(lk_last_error(context.get()), HasSubstr("unary: x: expected dense, or lines of last axes at one pitch"));
}

// Columns side by side in one matrix share no byte, columns that meet do.
TEST_P(KernelLines, OverlapIsThatOfColumns) {
  const Tensor whole = random_tensor(context.get(), random, {8, 32}, GetParam(), -1, 1);
  const auto columns = [&](int64_t from, int64_t count) {
    lk_tensor t = whole.view();
    t.data = static_cast<char*>(t.data) + from * lk_dtype_size(t.dtype);
    t.dims[1] = count, t.strides[0] = 32, t.strides[1] = 1;
    return t;
  };
  EXPECT_EQ(
      call(lk_unary, context.get(), {.kind = LK_GELU_TANH, .a = 0, .b = 0, .x = columns(0, 16), .y = columns(16, 16)}),
      LK_OK);
  EXPECT_EQ(
      call(lk_unary, context.get(), {.kind = LK_GELU_TANH, .a = 0, .b = 0, .x = columns(16, 16), .y = columns(0, 16)}),
      LK_OK);
  EXPECT_EQ(
      call(lk_unary, context.get(), {.kind = LK_GELU_TANH, .a = 0, .b = 0, .x = columns(0, 16), .y = columns(0, 16)}),
      LK_OK)
      << "in place";
  EXPECT_EQ(
      call(lk_unary, context.get(), {.kind = LK_GELU_TANH, .a = 0, .b = 0, .x = columns(0, 16), .y = columns(15, 16)}),
      LK_E_INVALID);
  EXPECT_THAT(lk_last_error(context.get()), HasSubstr("no overlap"));
}

INSTANTIATE_TEST_SUITE_P(Types, KernelLines, testing::Values(LK_F32, LK_F16, LK_BF16),
                         [](const auto& info) { return std::string(lk_dtype_name(info.param)); });

}  // namespace

}  // namespace lk_test::kernels_lines_test
