// Norms with a modulation or behind a gate where a GPU shares a row among many threads and sums among many blocks:
// results and gradients against the formulas in float64, each gradient alone, in place, and what is refused.
#include <gmock/gmock.h>

#include "support/kernel_tensors.h"

namespace lk_test::kernels_norms_test {
namespace {

using testing::HasSubstr;

constexpr float eps = 1e-5f;

// y = added + xh w (unit + factor), and its gradients. xh = (x - mean) / sqrt(variance + eps); mean 0 for RMS norms.
struct Law {
  int64_t images, length, channels;
  double unit;
  bool centered = false;

  struct Gradients {
    Values dx, dfactor, dadded;  // the last for one row of what is added for each image
  };

  size_t row(int64_t image, int64_t place) const { return static_cast<size_t>((image * length + place) * channels); }
  double mean(const Values& v, size_t at) const {
    double sum = 0;
    for (int64_t c = 0; centered && c < channels; ++c) sum += v[at + c];
    return sum / static_cast<double>(channels);
  }
  // xh of a row, and 1 / sqrt(..).
  std::pair<Values, double> normed(const Values& x, size_t at) const {
    const double middle = mean(x, at);
    double squares = 0;
    for (int64_t c = 0; c < channels; ++c) squares += (x[at + c] - middle) * (x[at + c] - middle);
    const double r = 1 / std::sqrt(squares / static_cast<double>(channels) + static_cast<double>(eps));
    Values xh(static_cast<size_t>(channels));
    for (int64_t c = 0; c < channels; ++c) xh[c] = (x[at + c] - middle) * r;
    return {xh, r};
  }
  Values forward(const Values& x, const Values& w, const Values& factor) const {
    Values y(x.size());
    for (int64_t i = 0; i < images; ++i)
      for (int64_t s = 0; s < length; ++s) {
        const size_t at = row(i, s);
        const Values xh = normed(x, at).first;
        for (int64_t c = 0; c < channels; ++c) y[at + c] = xh[c] * w[c] * (unit + factor[i * channels + c]);
      }
    return y;
  }
  Gradients backward(const Values& dy, const Values& x, const Values& w, const Values& factor) const {
    Gradients d{Values(x.size()), Values(factor.size(), 0.0), Values(factor.size(), 0.0)};
    for (int64_t i = 0; i < images; ++i)
      for (int64_t s = 0; s < length; ++s) {
        const size_t at = row(i, s);
        const auto [xh, r] = normed(x, at);
        Values g(xh.size());
        double product = 0;  // of g and xh
        for (int64_t c = 0; c < channels; ++c) {
          g[c] = dy[at + c] * w[c] * (unit + factor[i * channels + c]);
          product += g[c] * xh[c];
          d.dfactor[i * channels + c] += dy[at + c] * xh[c] * w[c];
          d.dadded[i * channels + c] += dy[at + c];
        }
        product /= static_cast<double>(channels);
        const double middle = mean(g, 0);
        for (int64_t c = 0; c < channels; ++c) d.dx[at + c] = r * (g[c] - middle - xh[c] * product);
      }
    return d;
  }
};

// Rows of a warp each, of several, and of as many as there may be, whole and ragged at their end; so many that a block
// has several; rows that are too wide for that.
const Shape shapes[] = {{3, 77, 640},   {2, 300, 1032}, {1, 30, 2048}, {1, 300, 3840},
                        {264, 5, 3080}, {1, 5, 8192},   {1, 5, 8200}};

class KernelNorms : public testing::TestWithParam<lk_dtype> {
 protected:
  struct Operands {
    Tensor x, z, factor, weight, dy;
  };
  // The weight is float32 whatever the rest is.
  Operands operands(const Shape& shape) {
    const Shape of_images{shape[0], 1, shape[2]};
    const auto make = [&](const Shape& s, lk_dtype type, double low, double high) {
      return random_tensor(context.get(), random, s, type, low, high);
    };
    return {make(shape, GetParam(), -1, 1), make(shape, GetParam(), -1, 2), make(of_images, GetParam(), -1, 1),
            make({shape[2]}, LK_F32, 0.5, 1.5), make(shape, GetParam(), -1, 1)};
  }
  Values load(const Tensor& t) { return t.load(context.get()); }
  Tensor empty(const Shape& shape) { return poisoned(context.get(), shape, GetParam()); }
  template <class Params>
  void run(lk_status (*function)(lk_context*, const Params*), const Params& p) {
    ASSERT_EQ(function(context.get(), &p), LK_OK) << lk_last_error(context.get());
  }
  void expect(const std::string& what, const Tensor& got, const Values& want, int64_t depth) {
    expect_near(what, load(got), want, GetParam(), depth);
  }

  Context context = make_context();
  std::mt19937 random{11};
};

TEST_P(KernelNorms, ModulatedRms) {
  for (const Shape& shape : shapes) {
    const Operands o = operands(shape);
    const Law law{shape[0], shape[1], shape[2], 1};
    const Tensor y = empty(shape);
    run(lk_modulated_norm,
        {.x = o.z.view(), .scale = o.factor.view(), .y = y.view(), .eps = eps, .rms = 1, .weight = o.weight.view()});
    expect("y", y, law.forward(load(o.z), load(o.weight), load(o.factor)), shape[2]);

    const Law::Gradients want = law.backward(load(o.dy), load(o.z), load(o.weight), load(o.factor));
    for (const auto& [with_dx, with_dscale] : {std::pair{true, true}, {true, false}, {false, true}}) {
      const Tensor dx = empty(shape), dscale = empty({shape[0], 1, shape[2]});
      const lk_modulated_norm_backward_params p{.dy = o.dy.view(),
                                                .x = o.z.view(),
                                                .scale = o.factor.view(),
                                                .eps = eps,
                                                .dx = with_dx ? dx.view() : lk_tensor{},
                                                .dscale = with_dscale ? dscale.view() : lk_tensor{},
                                                .rms = 1,
                                                .weight = o.weight.view()};
      run(lk_modulated_norm_backward, p);
      if (with_dx) expect("dx", dx, want.dx, shape[2]);
      if (!with_dscale) continue;
      expect("dscale", dscale, want.dfactor, std::max(shape[1], shape[2]));
      const std::vector<unsigned char> first = dscale.bytes();
      run(lk_modulated_norm_backward, p);
      EXPECT_EQ(dscale.bytes(), first);
    }
  }
}

TEST_P(KernelNorms, ModulatedLayerNorm) {
  for (const Shape& shape : shapes) {
    const Operands o = operands(shape);
    const Law law{shape[0], shape[1], shape[2], 1, true};
    const Values ones(static_cast<size_t>(shape[2]), 1.0);
    const Tensor y = empty(shape),
                 shift = random_tensor(context.get(), random, {shape[0], 1, shape[2]}, GetParam(), -1, 1);
    run(lk_modulated_norm,
        {.x = o.z.view(), .scale = o.factor.view(), .shift = shift.view(), .y = y.view(), .eps = eps});
    Values sum = law.forward(load(o.z), ones, load(o.factor));
    const Values shifts = load(shift);
    for (size_t i = 0; i < sum.size(); ++i) {
      const size_t image = i / static_cast<size_t>(shape[1] * shape[2]), channel = i % static_cast<size_t>(shape[2]);
      sum[i] += shifts[image * static_cast<size_t>(shape[2]) + channel];
    }
    expect("y", y, sum, shape[2]);

    const Law::Gradients want = law.backward(load(o.dy), load(o.z), ones, load(o.factor));
    enum { DX = 1, DSCALE = 2, DSHIFT = 4 };
    for (const int outputs : {DX | DSCALE | DSHIFT, DX | DSCALE, DX | DSHIFT, DSCALE | DSHIFT, +DX, +DSCALE, +DSHIFT}) {
      SCOPED_TRACE(outputs);
      const Tensor dx = empty(shape), dscale = empty({shape[0], 1, shape[2]}), dshift = empty({shape[0], 1, shape[2]});
      const auto asked = [&](int output, const Tensor& t) { return (outputs & output) != 0 ? t.view() : lk_tensor{}; };
      run(lk_modulated_norm_backward, {.dy = o.dy.view(),
                                       .x = o.z.view(),
                                       .scale = o.factor.view(),
                                       .eps = eps,
                                       .dx = asked(DX, dx),
                                       .dscale = asked(DSCALE, dscale),
                                       .dshift = asked(DSHIFT, dshift)});
      if ((outputs & DX) != 0) expect("dx", dx, want.dx, shape[2]);
      if ((outputs & DSCALE) != 0) expect("dscale", dscale, want.dfactor, std::max(shape[1], shape[2]));
      if ((outputs & DSHIFT) != 0) expect("dshift", dshift, want.dadded, std::max(shape[1], shape[2]));
    }
  }
}

// So many images that each is one block's, whose rows come to places that others had before them. Nothing is float32,
// and an RMS norm has neither weight nor shift.
TEST_P(KernelNorms, MoreRowsThanAreOnTheirWay) {
  const Shape shape{400, 20, 1032};
  const Operands o = operands(shape);
  const Values ones(static_cast<size_t>(shape[2]), 1.0);
  for (const int32_t rms : {0, 1}) {
    SCOPED_TRACE(rms);
    const Law law{shape[0], shape[1], shape[2], 1, rms == 0};
    const Tensor y = empty(shape);
    run(lk_modulated_norm, {.x = o.z.view(),
                            .scale = o.factor.view(),
                            .shift = rms == 0 ? o.factor.view() : lk_tensor{},
                            .y = y.view(),
                            .eps = eps,
                            .rms = rms});
    const Values factor = load(o.factor);
    Values sum = law.forward(load(o.z), ones, factor);
    for (size_t i = 0; rms == 0 && i < sum.size(); ++i)
      sum[i] += factor[i / static_cast<size_t>(shape[1] * shape[2]) * static_cast<size_t>(shape[2]) +
                       i % static_cast<size_t>(shape[2])];
    expect("y", y, sum, shape[2]);

    const Law::Gradients want = law.backward(load(o.dy), load(o.z), ones, factor);
    for (const bool onto : {false, true}) {
      const Tensor dx = empty(shape), dscale = empty({shape[0], 1, shape[2]});
      run(lk_modulated_norm_backward, {.dy = o.dy.view(),
                                       .x = o.z.view(),
                                       .scale = o.factor.view(),
                                       .eps = eps,
                                       .dx = dx.view(),
                                       .dscale = dscale.view(),
                                       .rms = rms,
                                       .added = onto ? o.x.view() : lk_tensor{}});
      sum = want.dx;
      const Values x = load(o.x);
      for (size_t i = 0; onto && i < sum.size(); ++i) sum[i] += x[i];
      expect("dx", dx, sum, shape[2]);
      expect("dscale", dscale, want.dfactor, shape[2]);
    }
  }
}

TEST_P(KernelNorms, LayerNormWhoseWeightStays) {
  for (const Shape& shape : shapes) {
    const Operands o = operands(shape);
    const int64_t rows = shape[0] * shape[1];
    const Law law{1, rows, shape[2], 0, true};
    const Values ones(static_cast<size_t>(shape[2]), 1.0);
    const Tensor dx = empty(shape);
    run(lk_layer_norm_backward,
        {.dy = o.dy.view(), .x = o.z.view(), .weight = o.weight.view(), .eps = eps, .dx = dx.view()});
    expect("dx", dx, law.backward(load(o.dy), load(o.z), ones, load(o.weight)).dx, shape[2]);
  }
}

// A weight of float32, of the type of the rows, and none.
TEST_P(KernelNorms, RmsNormAlone) {
  for (const Shape& shape : shapes) {
    const Operands o = operands(shape);
    const int64_t rows = shape[0] * shape[1], width = shape[2];
    const Law law{1, rows, width, 0};
    const Values ones(static_cast<size_t>(width), 1.0), z = load(o.z), dy = load(o.dy);
    const Tensor narrow = random_tensor(context.get(), random, {width}, GetParam(), 0.5, 1.5);
    for (const Tensor* weight : {&o.weight, &narrow, static_cast<const Tensor*>(nullptr)}) {
      const lk_tensor view = weight != nullptr ? weight->view() : lk_tensor{};
      const Values w = weight != nullptr ? load(*weight) : ones;
      const Tensor y = empty(shape), dx = empty(shape);
      run(lk_rms_norm, {.x = o.z.view(), .weight = view, .y = y.view(), .eps = eps});
      expect("y", y, law.forward(z, ones, w), width);
      run(lk_rms_norm_backward, {.dy = o.dy.view(), .x = o.z.view(), .weight = view, .eps = eps, .dx = dx.view()});
      expect("dx", dx, law.backward(dy, z, ones, w).dx, width);
    }
  }
}

// dx beside what it is added to, and over it.
TEST_P(KernelNorms, GradientsAreAddedToWhatIsThere) {
  for (const Shape& shape : shapes) {
    const Operands o = operands(shape);
    const int64_t rows = shape[0] * shape[1];
    const Values ones(static_cast<size_t>(shape[2]), 1.0), dy = load(o.dy), z = load(o.z), weight = load(o.weight),
                                                           factor = load(o.factor);
    const auto add_to = [&](const std::string& what, const Values& gradient, const auto& backward) {
      Tensor sum(shape, GetParam());
      const Tensor apart = empty(shape), dscale = empty({shape[0], 1, shape[2]});
      sum.store(context.get(), load(o.x));
      Values want = load(o.x);
      for (size_t i = 0; i < want.size(); ++i) want[i] += gradient[i];
      backward(sum, apart, dscale);
      expect(what, apart, want, shape[2]);
      backward(sum, sum, dscale);
      EXPECT_EQ(sum.bytes(), apart.bytes()) << what << " in place";
    };
    for (const int32_t rms : {0, 1}) {
      const Law law{shape[0], shape[1], shape[2], 1, rms == 0};
      for (const bool with_dscale : {true, false})
        add_to("modulated_norm", law.backward(dy, z, rms == 1 ? weight : ones, factor).dx,
               [&](const Tensor& added, const Tensor& dx, const Tensor& dscale) {
                 run(lk_modulated_norm_backward, {.dy = o.dy.view(),
                                                  .x = o.z.view(),
                                                  .scale = o.factor.view(),
                                                  .eps = eps,
                                                  .dx = dx.view(),
                                                  .dscale = with_dscale ? dscale.view() : lk_tensor{},
                                                  .rms = rms,
                                                  .weight = rms == 1 ? o.weight.view() : lk_tensor{},
                                                  .added = added.view()});
               });
    }
    add_to("layer_norm", Law{1, rows, shape[2], 0, true}.backward(dy, z, ones, weight).dx,
           [&](const Tensor& added, const Tensor& dx, const Tensor&) {
             run(lk_layer_norm_backward, {.dy = o.dy.view(),
                                          .x = o.z.view(),
                                          .weight = o.weight.view(),
                                          .eps = eps,
                                          .dx = dx.view(),
                                          .added = added.view()});
           });
    add_to("rms_norm", Law{1, rows, shape[2], 0}.backward(dy, z, ones, weight).dx,
           [&](const Tensor& added, const Tensor& dx, const Tensor&) {
             run(lk_rms_norm_backward, {.dy = o.dy.view(),
                                        .x = o.z.view(),
                                        .weight = o.weight.view(),
                                        .eps = eps,
                                        .dx = dx.view(),
                                        .added = added.view()});
           });
    const lk_layer_norm_backward_params alone{
        .dy = o.dy.view(), .x = o.z.view(), .eps = eps, .dbias = {}, .added = o.x.view()};
    EXPECT_EQ(lk_layer_norm_backward(context.get(), &alone), LK_E_INVALID);
    EXPECT_THAT(lk_last_error(context.get()), HasSubstr("added: expected dx beside it"));
  }
}

TEST_P(KernelNorms, ResidualBehindANorm) {
  for (const Shape& shape : shapes) {
    const Operands o = operands(shape);
    const Law law{shape[0], shape[1], shape[2], 0};
    const lk_gated_residual_params p{.x = o.x.view(),
                                     .gate = o.factor.view(),
                                     .z = o.z.view(),
                                     .y = {},
                                     .rms = 1,
                                     .eps = eps,
                                     .weight = o.weight.view()};
    Values want = law.forward(load(o.z), load(o.weight), load(o.factor));
    const Values x = load(o.x);
    for (size_t i = 0; i < x.size(); ++i) want[i] += x[i];
    const Tensor y = empty(shape);
    lk_gated_residual_params apart = p, in_place = p;
    apart.y = y.view();
    run(lk_gated_residual, apart);
    expect("y", y, want, shape[2]);
    in_place.y = o.x.view();
    run(lk_gated_residual, in_place);
    EXPECT_EQ(o.x.bytes(), y.bytes());

    const Law::Gradients gradients = law.backward(load(o.dy), load(o.z), load(o.weight), load(o.factor));
    for (const auto& [with_dz, with_dgate] : {std::pair{true, true}, {true, false}, {false, true}}) {
      const Tensor dz = empty(shape), dgate = empty({shape[0], 1, shape[2]});
      run(lk_gated_residual_backward, {.dy = o.dy.view(),
                                       .gate = o.factor.view(),
                                       .z = o.z.view(),
                                       .dz = with_dz ? dz.view() : lk_tensor{},
                                       .dgate = with_dgate ? dgate.view() : lk_tensor{},
                                       .rms = 1,
                                       .eps = eps,
                                       .weight = o.weight.view()});
      if (with_dz) expect("dz", dz, gradients.dx, shape[2]);
      if (with_dgate) expect("dgate", dgate, gradients.dfactor, std::max(shape[1], shape[2]));
    }
  }
}

TEST_P(KernelNorms, RefuseAWeightOfAnotherNormAndAShiftThatIsMissing) {
  const Shape shape{2, 3, 16};
  const Operands o = operands(shape);
  const Tensor y = empty(shape);
  const std::vector<unsigned char> before = y.bytes();
  const auto refused = [&](lk_status status, const char* why) {
    EXPECT_EQ(status, LK_E_INVALID);
    EXPECT_THAT(lk_last_error(context.get()), HasSubstr(why));
  };
  const lk_modulated_norm_params norm{
      .x = o.z.view(), .scale = o.factor.view(), .y = y.view(), .eps = eps, .rms = 1, .weight = o.weight.view()};
  lk_modulated_norm_params p = norm;
  p.rms = 2;
  refused(lk_modulated_norm(context.get(), &p), "modulated_norm: rms: expected 0 or 1, found 2");
  p = norm, p.rms = 0, p.shift = o.factor.view();
  refused(lk_modulated_norm(context.get(), &p), "modulated_norm: weight: expected data NULL where rms is 0");
  p = norm, p.rms = 0, p.weight = {};
  refused(lk_modulated_norm(context.get(), &p), "modulated_norm: shift");
  p = norm, p.weight = o.dy.view();
  refused(lk_modulated_norm(context.get(), &p), "modulated_norm: weight");

  const lk_gated_residual_params residual{
      .x = o.x.view(), .gate = o.factor.view(), .z = o.z.view(), .y = y.view(), .weight = o.weight.view()};
  refused(lk_gated_residual(context.get(), &residual), "gated_residual: weight: expected data NULL where rms is 0");
  // z is needed for dz where it is normed, and else is not.
  lk_gated_residual_backward_params d{.dy = o.dy.view(), .gate = o.factor.view(), .dz = y.view(), .rms = 1, .eps = eps};
  refused(lk_gated_residual_backward(context.get(), &d), "gated_residual_backward: z");
  EXPECT_EQ(y.bytes(), before);
  d.rms = 0;
  run(lk_gated_residual_backward, d);
}

INSTANTIATE_TEST_SUITE_P(Types, KernelNorms, testing::Values(LK_F32, LK_F16, LK_BF16),
                         [](const auto& info) { return std::string(lk_dtype_name(info.param)); });

}  // namespace
}  // namespace lk_test::kernels_norms_test
