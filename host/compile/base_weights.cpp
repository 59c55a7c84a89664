#include "compile/base_weights.h"

#include <memory>
#include <optional>
#include <utility>

#include "run/plan.h"

namespace lh {
namespace {

class WeightSource {
 public:
  WeightSource(Device& device, const Checkpoint& checkpoint, const Weights& weights, const Graph& graph)
      : device_(device), checkpoint_(checkpoint), weights_(weights), graph_(graph) {}

  void put(const std::string& name, const lk_tensor& out) {
    if (const std::optional<Weights::Whole> kept = exact(name)) {
      const ValueInfo& info = graph_.info(graph_.params.at(name));
      const Desc scale = info.scale ? graph_.desc(info.scale) : Desc{};
      return widen(name, info.desc, *kept, scale, out);
    }
    const Desc stored{checkpoint_.exact_dtype(name), checkpoint_.weights().at(name).shape};
    device_.synchronize();  // the staging memory's copy before has happened
    grow(staging_, stored.bytes());
    checkpoint_.read(name, stored.dtype, false, {staging_.data(), static_cast<size_t>(stored.bytes())});
    widen(name, stored, {.data = staging_.data(), .scale = nullptr, .on_host = true}, {}, out);
  }

 private:
  // The weight as it is kept, where its values are those of the file in their order.
  std::optional<Weights::Whole> exact(const std::string& name) const {
    const auto param = graph_.params.find(name);
    if (param == graph_.params.end()) return std::nullopt;
    const ValueInfo& info = graph_.info(param->second);
    if (info.channels_last) return std::nullopt;
    if (info.scale) {
      const std::optional<WeightForm> stored = checkpoint_.stored_fp8(name);
      if (!stored || stored->dtype != info.desc.dtype) return std::nullopt;
    } else if (info.desc.dtype != DType::f32 && info.desc.dtype != checkpoint_.exact_dtype(name)) {
      return std::nullopt;
    }
    return weights_.whole(graph_, name);
  }

  void widen(const std::string& name, const Desc& desc, const Weights::Whole& from, const Desc& scale,
             const lk_tensor& out) {
    const bool factors = from.scale != nullptr;
    const int64_t bytes = desc.bytes(), behind = placed_bytes(bytes);
    Weights::Whole here = from;
    if (from.on_host) {
      grow(buffer_, behind + (factors ? scale.bytes() : 0));
      copy(name, buffer_.data(), from.data, bytes);
      here.data = buffer_.data();
      if (factors) {
        copy(name, buffer_.data() + behind, from.scale, scale.bytes());
        here.scale = buffer_.data() + behind;
      }
    }
    if (desc.dtype == DType::f32) return copy(name, static_cast<std::byte*>(out.data), here.data, bytes);
    const lk_cast_params params{
        .x = tensor(desc, here.data), .scale = factors ? tensor(scale, here.scale) : lk_tensor{}, .y = out};
    device_.check(lk_cast(device_.context(), &params), name);
  }

  static lk_tensor tensor(const Desc& desc, const std::byte* data) {
    return kernel_tensor(desc, const_cast<std::byte*>(data));  // kernels have one type for what they read and write
  }

  void copy(const std::string& name, std::byte* to, const std::byte* from, int64_t bytes) const {
    device_.check(lk_copy_async(device_.context(), LK_COMPUTE, to, from, bytes), name);
  }

  void grow(StagingMemory& memory, int64_t bytes) const {
    if (memory.bytes() < bytes) memory = StagingMemory(device_, bytes);
  }
  void grow(DeviceMemory& memory, int64_t bytes) const {
    if (memory.bytes() >= bytes) return;
    device_.synchronize();
    memory = DeviceMemory();
    memory = DeviceMemory(device_, bytes, "weights on their way to first values of adapters");
  }

  Device& device_;
  const Checkpoint& checkpoint_;
  const Weights& weights_;
  const Graph& graph_;
  StagingMemory staging_;  // of what is read
  DeviceMemory buffer_;    // of what comes from host memory, in its own type
};

}  // namespace

BaseWeight base_weights(Device& device, const Checkpoint& checkpoint, const Weights& weights, const Graph& graph) {
  const auto source = std::make_shared<WeightSource>(device, checkpoint, weights, graph);
  return {.read = [&checkpoint](const std::string& weight) { return checkpoint.read_f32(weight); },
          .put = [source](const std::string& weight, const lk_tensor& out) { source->put(weight, out); }};
}

}  // namespace lh
