#include "compile/initial_numbers.h"

#include <algorithm>
#include <span>

#include "core/parallel.h"
#include "core/random.h"

namespace lh {
namespace {

constexpr int64_t most_at_once = int64_t{1} << 24, part_elements = int64_t{1} << 13;

// Elements [first, first + out.size()) of a tensor; `first` is even, so that they begin with a block of the generator.
void fill(std::span<float> out, int64_t first, const NumberStream& stream, uint64_t seed) {
  Random random(seed, Purpose::adapter_init, stream.number, 0);
  const double value = stream.initial.value;
  if (stream.initial.kind == InitialValue::Kind::uniform) {
    random.skip(static_cast<uint32_t>(first / Random::uniforms_of_block));
    for (float& v : out) v = static_cast<float>((2 * random.uniform() - 1) * value);
  } else {
    random.skip(static_cast<uint32_t>(first / Random::normals_of_block));
    for (float& v : out) v = static_cast<float>(random.normal() * value);
  }
}

struct Stretch {  // of a stream
  size_t stream;
  int64_t first, end;
};

}  // namespace

void make_numbers(uint64_t seed, const std::vector<NumberStream>& streams,
                  const std::function<void(uint64_t number, const HostTensor& values)>& take) {
  for (size_t begin = 0, end = 0; begin < streams.size(); begin = end) {
    std::vector<HostTensor> made;
    std::vector<Stretch> parts;
    for (int64_t elements = 0; end < streams.size(); ++end) {
      const int64_t own = streams[end].shape.numel();
      if (end > begin && elements + own > most_at_once) break;
      elements += own;
      made.emplace_back(Desc{DType::f32, streams[end].shape});
      for (int64_t first = 0; first < own; first += part_elements)
        parts.push_back({end, first, std::min(first + part_elements, own)});
    }
    in_threads(static_cast<int64_t>(parts.size()), 1, [&](int64_t from, int64_t to) {
      for (const Stretch& part : std::span(parts).subspan(static_cast<size_t>(from), static_cast<size_t>(to - from)))
        fill(made[part.stream - begin].as<float>().subspan(static_cast<size_t>(part.first),
                                                           static_cast<size_t>(part.end - part.first)),
             part.first, streams[part.stream], seed);
    });
    for (size_t i = 0; i < made.size(); ++i) take(streams[begin + i].number, made[i]);
  }
}

}  // namespace lh
