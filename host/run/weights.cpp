// Uploads weights in the types that the graph wants, one staging buffer at a time.
#include "run/weights.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <optional>
#include <random>
#include <span>
#include <vector>

#include "io/synthetic.h"
#include "passes/stream.h"
#include "run/plan.h"

namespace lh {
namespace {

// Where the factors of a weight are, from its own place: right behind it.
int64_t scale_offset(const Graph& graph, Value weight) { return placed_bytes(graph.desc(weight).bytes()); }

// Bytes of a weight and its factors.
int64_t stored_bytes(const Graph& graph, Value weight) {
  const Value scale = graph.info(weight).scale;
  return scale_offset(graph, weight) + (scale ? placed_bytes(graph.desc(scale).bytes()) : 0);
}

// The same of the part that a process keeps.
int64_t kept_part_bytes(const Graph& graph, Value weight, const WeightShare& share) {
  const Value scale = graph.info(weight).scale;
  return placed_bytes(share.kept(graph.desc(weight).bytes())) +
         (scale ? placed_bytes(share.kept(graph.desc(scale).bytes())) : 0);
}

// Reads a weight and its factors to `out`, which has their stored_bytes.
void read_weight(const Checkpoint& checkpoint, const Graph& graph, const std::string& name, std::byte* out) {
  const Value weight = graph.params.at(name);
  const ValueInfo& info = graph.info(weight);
  const std::span elements(out, static_cast<size_t>(info.desc.bytes()));
  if (!info.scale) return checkpoint.read(name, info.desc.dtype, info.channels_last, elements);
  checkpoint.read_codes(name, info.desc.dtype, elements,
                        {out + scale_offset(graph, weight), static_cast<size_t>(graph.desc(info.scale).bytes())});
}

// Random weights, each from a stream of its own.
class RandomWeights {
 public:
  explicit RandomWeights(Device& device) : device_(device) {}

  void fill(const lk_tensor& y, double value, const std::string& name) const {
    const lk_fill_params p{.y = y, .value = value};
    device_.check(lk_fill(device_.context(), &p), name);
  }

  void normal(const lk_tensor& y, double deviation, const std::string& name) {
    const lk_random_normal_params p{.y = y, .scale = static_cast<float>(deviation), .seed = 1, .stream = stream_++};
    device_.check(lk_random_normal(device_.context(), &p), name);
  }

  // Codes of fp8 or int8, through bfloat16 values in `wide`.
  void codes_normal(const lk_tensor& y, double deviation, void* wide, const std::string& name) {
    lk_tensor values = y;
    values.data = wide;
    values.dtype = LK_BF16;
    normal(values, deviation, name);
    const lk_cast_params p{.x = values, .scale = {}, .y = y};
    device_.check(lk_cast(device_.context(), &p), name);
  }

  // An nf4 weight and its scale: the levels are quantiles of the normal distribution, so all codes are alike.
  void nf4_normal(std::byte* codes, int64_t bytes, std::byte* scale, const Desc& scale_desc, double deviation,
                  const std::string& name) {
    words_.resize(1 << 17);
    const auto most = static_cast<int64_t>(words_.size() * sizeof words_[0]);
    for (int64_t done = 0; done < bytes; done += most) {  // all made anew: what repeats is read from the cache
      std::ranges::generate(words_, std::ref(random_));
      device_.check(lk_upload(device_.context(), codes + done, words_.data(), std::min(bytes - done, most)), name);
    }
    const std::span levels(lk_nf4_levels(), 16);
    double squares = 0;
    for (const float level : levels) squares += static_cast<double>(level) * static_cast<double>(level) / 16;
    HostTensor made(scale_desc);  // no range: the factor of every block is the offset
    const auto offset = static_cast<float>(deviation / std::sqrt(squares));
    std::memcpy(made.data.data(), &offset, sizeof offset);
    device_.check(lk_upload(device_.context(), scale, made.data.data(), scale_desc.bytes()), name);
  }

 private:
  Device& device_;
  uint64_t stream_ = 0;
  std::mt19937_64 random_;
  std::vector<uint64_t> words_;  // host memory, of nf4 alone
};

// Standard deviation of codes that a factor multiplies. No value that lk_random_normal makes is 7 deviations away,
// which would be the largest code: 448 of e4m3, 127 of int8.
double code_deviation(DType dtype) { return dtype == DType::i8 ? 127.0 / 7 : 64; }

}  // namespace

std::vector<std::string> weight_names(const Graph& graph, const Checkpoint& checkpoint) {
  std::vector<std::string> names;
  for (const auto& [name, value] : graph.params)
    if (checkpoint.weights().contains(name)) names.push_back(name);
  return names;
}

namespace {

int64_t bytes_of(const Graph& graph, const std::vector<std::string>& names, bool on_host) {
  const std::set<Value> streamed = streamed_parameters(graph);
  int64_t total = 0;
  for (const std::string& name : names)
    if (const Value weight = graph.params.at(name); streamed.contains(weight) == on_host)
      total += stored_bytes(graph, weight);
  return total;
}

}  // namespace

int64_t weight_bytes(const Graph& graph, const std::vector<std::string>& names) {
  return bytes_of(graph, names, false);
}

int64_t streamed_bytes(const Graph& graph, const std::vector<std::string>& names) {
  return bytes_of(graph, names, true);
}

int64_t kept_bytes(const Graph& graph, const std::vector<std::string>& names, const WeightShare& share) {
  if (share.deals()) return 0;  // the other process has them
  const std::set<Value> fetched = streamed_parameters(graph);
  int64_t total = 0;
  for (const std::string& name : names)
    if (const Value weight = graph.params.at(name); fetched.contains(weight))
      total += kept_part_bytes(graph, weight, share);
  return total;
}

Weights::Weights(Device& device, const Checkpoint& checkpoint, const Graph& graph, Source source,
                 const WeightShare& share)
    : share_(share) {
  const std::vector<std::string> names = weight_names(graph, checkpoint);
  const std::set<Value> fetched = streamed_parameters(graph), offered = offered_parameters(graph);
  const Kept elsewhere = share.whole() ? Kept::on_host : Kept::part;
  int64_t here = 0, on_host = 0;
  std::vector<std::string> dealt;
  for (const std::string& name : names) {
    const Value weight = graph.params.at(name);
    if (share.deals() && (fetched.contains(weight) || offered.contains(weight))) {
      dealt.push_back(name);
      continue;
    }
    const Kept kept = fetched.contains(weight) ? elsewhere : Kept::whole;
    int64_t& offset = kept == Kept::on_host ? on_host : here;
    places_[name] = {kept, offset};
    offset += kept == Kept::part ? kept_part_bytes(graph, weight, share) : stored_bytes(graph, weight);
  }
  // Behind what both processes have each has its own, in the same order.
  int64_t there = here;
  for (const std::string& name : dealt) {
    const Value weight = graph.params.at(name);
    const bool own = offered.contains(weight);
    int64_t& offset = own ? here : there;
    places_[name] = {own ? Kept::whole : Kept::elsewhere, offset};
    offset += stored_bytes(graph, weight);
  }
  memory_ = DeviceMemory(device, here, "model weights");
  if (on_host > 0) host_ = StagingMemory(device, on_host);
  if (source == Source::file)
    read(device, checkpoint, graph, names);
  else
    make(device, graph, names);
}

std::byte* Weights::at(const std::string& name) const {
  const Place& place = places_.at(name);
  return (place.kept == Kept::on_host ? host_.data() : memory_.data()) + place.offset;
}

// Where the factors of a weight are, from its own place.
int64_t Weights::scale_offset(const Graph& graph, const std::string& name) const {
  const Value weight = graph.params.at(name);
  return places_.at(name).kept == Kept::part ? placed_bytes(share_.kept(graph.desc(weight).bytes()))
                                             : lh::scale_offset(graph, weight);
}

// From the whole of a weight and its factors, as they are stored, in memory of the host or of the device.
void Weights::keep_part(Device& device, const Graph& graph, const std::string& name, const std::byte* whole,
                        bool on_device) {
  const Value weight = graph.params.at(name);
  const auto keep = [&](const Desc& desc, const std::byte* from, std::byte* to) {
    const int64_t part = share_.part(desc.bytes()), rest = share_.rest(desc.bytes());
    const auto copy = [&](std::byte* out, const std::byte* in, int64_t bytes) {
      if (bytes == 0) return;
      device.check(on_device ? lk_copy_async(device.context(), LK_COMPUTE, out, in, bytes)
                             : lk_upload(device.context(), out, in, bytes),
                   name);
    };
    copy(to, from + share_.rank * part, part);
    copy(to + part, from + desc.bytes() - rest, rest);
  };
  keep(graph.desc(weight), whole, at(name));
  if (const Value scale = graph.info(weight).scale)
    keep(graph.desc(scale), whole + lh::scale_offset(graph, weight), at(name) + scale_offset(graph, name));
}

void Weights::read_again(Device& device, const Checkpoint& checkpoint, const Graph& graph,
                         const std::vector<std::string>& names) {
  if (!names.empty()) read(device, checkpoint, graph, names);
}

void Weights::read(Device& device, const Checkpoint& checkpoint, const Graph& graph,
                   const std::vector<std::string>& names) {
  std::vector<std::string> to_device;
  std::vector<std::byte> whole;
  for (const std::string& name : names) {
    const Kept kept = places_.at(name).kept;
    if (kept == Kept::elsewhere) continue;
    if (kept == Kept::part) {
      whole.resize(static_cast<size_t>(stored_bytes(graph, graph.params.at(name))));
      read_weight(checkpoint, graph, name, whole.data());
      keep_part(device, graph, name, whole.data(), false);
    } else if (device.is_cpu() || kept == Kept::on_host) {
      read_weight(checkpoint, graph, name, at(name));
    } else {
      to_device.push_back(name);
    }
  }
  if (to_device.empty()) return;
  const auto bytes = [&](const std::string& name) { return stored_bytes(graph, graph.params.at(name)); };
  // One tensor is read from the file while the one before is on its way to the device.
  int64_t largest = 0;
  for (const std::string& name : to_device) largest = std::max(largest, bytes(name));
  const StagingMemory staging[2] = {StagingMemory(device, largest), StagingMemory(device, largest)};
  const Event sent[2] = {Event(device), Event(device)};
  for (size_t i = 0; i < to_device.size(); ++i) {
    const size_t slot = i % 2;
    if (i >= 2) sent[slot].finish();
    read_weight(checkpoint, graph, to_device[i], staging[slot].data());
    device.check(
        lk_copy_async(device.context(), LK_TRANSFER, at(to_device[i]), staging[slot].data(), bytes(to_device[i])),
        to_device[i]);
    sent[slot].record(LK_TRANSFER);
  }
  device.synchronize();
}

void Weights::make(Device& device, const Graph& graph, const std::vector<std::string>& names) {
  const auto has_codes = [](DType dtype) { return is_fp8(dtype) || dtype == DType::i8; };
  int64_t most = 0;  // elements of such a weight
  for (const std::string& name : names) {
    const Desc& desc = graph.desc(graph.params.at(name));
    if (has_codes(desc.dtype)) most = std::max(most, desc.shape.numel());
  }
  const DeviceMemory wide(device, most * dtype_size(DType::bf16), "random weights on their way to 8 bits");
  int64_t largest = 0;  // of those that are made on the device and kept elsewhere, or in part
  for (const std::string& name : names)
    if (places_.at(name).kept != Kept::whole) largest = std::max(largest, stored_bytes(graph, graph.params.at(name)));
  const DeviceMemory made(device, largest, "random weights on their way to where they are kept");
  RandomWeights random(device);
  for (const std::string& name : names) {
    const Value weight = graph.params.at(name);
    const Desc& desc = graph.desc(weight);
    const Value scale = graph.info(weight).scale;
    const WeightLaw law = weight_law(name, desc.shape);
    const Kept kept = places_.at(name).kept;
    std::byte* const place = kept == Kept::whole ? at(name) : made.data();
    const lk_tensor tensor = kernel_tensor(desc, place);
    const bool nf4 = desc.dtype == DType::nf4;
    if (scale && !nf4)
      random.fill(kernel_tensor(graph.desc(scale), place + lh::scale_offset(graph, weight)),
                  law.deviation / code_deviation(desc.dtype), name);
    if (nf4)
      random.nf4_normal(place, desc.bytes(), place + lh::scale_offset(graph, weight), graph.desc(scale), law.deviation,
                        name);
    else if (law.offset != 0)
      random.fill(tensor, law.offset, name);
    else if (has_codes(desc.dtype))
      random.codes_normal(tensor, scale ? code_deviation(desc.dtype) : law.deviation, wide.data(), name);
    else
      random.normal(tensor, law.deviation, name);
    if (kept == Kept::on_host) made.download(0, at(name), stored_bytes(graph, weight));
    if (kept == Kept::part) keep_part(device, graph, name, made.data(), true);
  }
  device.synchronize();  // `wide` goes away
}

std::optional<Weights::Whole> Weights::whole(const Graph& graph, const std::string& name) const {
  const auto place = places_.find(name);
  if (place == places_.end()) return std::nullopt;
  const Kept kept = place->second.kept;
  if (kept != Kept::whole && kept != Kept::on_host) return std::nullopt;
  const bool factors{graph.info(graph.params.at(name)).scale};
  return Whole{at(name), factors ? at(name) + scale_offset(graph, name) : nullptr, kept == Kept::on_host};
}

Externals Weights::bind(const Graph& graph) const {
  Externals externals;
  for (const auto& [name, value] : graph.params)
    if (places_.contains(name)) {
      externals[value] = at(name);
      if (const Value scale = graph.info(value).scale) externals[scale] = at(name) + scale_offset(graph, name);
    }
  return externals;
}

}  // namespace lh
