// conv2d, conv3d and their gradients: types, and the taps of time that matter (convolution.h does the rest).
#include "cpu/convolution.h"

#include <cstring>

#include "cpu/column_sums.h"
#include "cpu/convert.h"

namespace lk::cpu {

namespace {

// The taps of time that ever meet a frame; the shape becomes that of a convolution with these alone.
class LiveWeight {
 public:
  explicit LiveWeight(ConvolutionShape& s)
      : live_(live_taps(s.t)),
        rows_(s.groups * s.o),
        row_(s.window()),
        begin_(live_.first * row_ / s.t.kernel),
        length_(live_.count * row_ / s.t.kernel) {
    s.t = with_taps(s.t, live_);
  }
  bool all() const { return length_ == row_; }
  const float* cut(Cpu& cpu, const float* weight) {
    if (all()) return weight;
    part_.take(cpu, rows_ * length_);
    for (int64_t o = 0; o < rows_; ++o) {
      std::memcpy(part_.data() + o * length_, weight + o * row_ + begin_, float_bytes(length_));
    }
    return part_.data();
  }
  // Where the gradient goes, and, once it is there, the whole of it: the other taps have none.
  float* gradient(Cpu& cpu, float* dweight) {
    if (all()) return dweight;
    part_.take(cpu, rows_ * length_);
    return part_.data();
  }
  void spread(float* dweight) const {
    if (all()) return;
    std::memset(dweight, 0, float_bytes(rows_ * row_));
    for (int64_t o = 0; o < rows_; ++o) {
      std::memcpy(dweight + o * row_ + begin_, part_.data() + o * length_, float_bytes(length_));
    }
  }

 private:
  LiveTaps live_;
  int64_t rows_, row_, begin_, length_;
  Scratch<float> part_;
};

template <class Params>
void run_forward(Cpu& cpu, ConvolutionShape s, const Params& p) {
  const FloatIn x(cpu, p.x), weight(cpu, p.weight), bias(cpu, p.bias);
  const FloatOut y(cpu, p.y);
  LiveWeight live(s);
  const float* const taps = live.cut(cpu, weight);
  convolve(cpu, s, x, taps, bias, y);
}

template <class Params>
void run_backward(Cpu& cpu, const Params& p,
                  ConvolutionShape (*shape)(const Params&, const lk_tensor&, const lk_tensor&, const lk_tensor&)) {
  const FloatIn dy(cpu, p.dy);
  if (present(p.dx)) {
    const FloatIn weight(cpu, p.weight);
    const FloatOut dx(cpu, p.dx);
    ConvolutionShape s = shape(p, p.dx, p.weight, p.dy);
    LiveWeight live(s);
    const float* const taps = live.cut(cpu, weight);
    input_gradient(cpu, s, dy, taps, dx);
  }
  if (present(p.dweight)) {
    const FloatIn x(cpu, p.x);
    const FloatOut dweight(cpu, p.dweight);
    ConvolutionShape s = shape(p, p.x, p.dweight, p.dy);
    LiveWeight live(s);
    weight_gradient(cpu, s, dy, x, live.gradient(cpu, dweight));
    live.spread(dweight);
  }
  if (present(p.dbias)) {
    const int64_t channels = last_dim(p.dy);
    const FloatOut dbias(cpu, p.dbias);
    column_sums(cpu, dy, numel(p.dy) / channels, channels, dbias);
  }
}

}  // namespace

void conv2d(Cpu& cpu, const lk_conv2d_params& p) { run_forward(cpu, planar_shape(p, p.x, p.weight, p.y), p); }
void conv3d(Cpu& cpu, const lk_conv3d_params& p) { run_forward(cpu, spatial_shape(p, p.x, p.weight, p.y), p); }
void conv2d_backward(Cpu& cpu, const lk_conv2d_backward_params& p) { run_backward(cpu, p, planar_shape); }
void conv3d_backward(Cpu& cpu, const lk_conv3d_backward_params& p) { run_backward(cpu, p, spatial_shape); }

}  // namespace lk::cpu
