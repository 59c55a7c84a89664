// The trained tensors, such as LoRA matrices, with their gradients, float32, in device memory. What they
// are (names, roles, how they begin) comes from passes/adapt.h.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "compile/base_weights.h"
#include "io/lora_file.h"
#include "passes/adapt.h"
#include "run/device.h"
#include "run/program.h"
#include "run/update_plan.h"

namespace lh {

struct AdapterTensor {
  std::string name;
  Shape shape;
  int64_t offset = 0;          // in elements, within each section
  bool channels_last = false;  // a convolution's: kept [rank, KH, KW, in] on the device
  TensorRole role = TensorRole::other;
  std::string module = {};  // that it belongs to
  int64_t rank = 0;         // of the module's adapter
  int64_t bytes() const { return Desc{DType::f32, shape}.bytes(); }
};

// Sections, each a piece of memory: "p", "g", where gradients are accumulated "total", where changes are counted from
// the first values "start", where the optimizer saves other weights than it trains "evaluation", and where an average
// of the weights is kept "ema". Within a section the tensors lie by component, role and shape, so that those that an
// optimizer updates alike lie side by side.
class Adapters {
 public:
  Adapters(const Graph& graph, const std::vector<AdaptedModule>& modules, bool accumulate = false);
  // Once each; where there is memory already, its own is taken.
  void add_section(const std::string& name);
  bool has(std::string_view section) const;
  int64_t bytes() const { return section_elements_ * static_cast<int64_t>(sections_.size() * sizeof(float)); }
  int64_t parameter_count() const;
  const std::vector<AdaptedModule>& adapted() const { return adapted_; }
  const std::vector<AdapterTensor>& tensors() const { return tensors_; }  // those of each of `adapted`, in its order
  // Number of the first tensor of module number `module` of `adapted`.
  size_t first_tensor(size_t module) const { return first_[module]; }
  const std::vector<std::string>& sections() const { return sections_; }
  // The section that the optimizer would have saved, and the one that is saved and sampled with: the average of it
  // where there is one.
  const char* evaluated() const { return has("evaluation") ? "evaluation" : "p"; }
  const char* shown() const { return has("ema") ? "ema" : evaluated(); }
  std::vector<std::string> saved_sections() const;  // that a run which goes on needs: "p", "start"
  // What an optimizer works on, without groups.
  std::vector<TrainedTensor> trained() const;
  // All tensors of a section as one, with zeros between them: for what is done to every element alike.
  AdapterTensor whole() const { return {"all trained tensors", Shape{section_elements_}, 0}; }

  void allocate(Device& device);
  // "p" as each tensor's InitialValue says, the rest 0. base: for the tensors that begin with what a weight says.
  void initialise(uint64_t seed, const BaseWeight& base = {});
  void* at(const std::string& section, const AdapterTensor& tensor) const;
  // Host tensors have the shape that files have, [rank, in, KH, KW] for a convolution.
  void upload(const std::string& section, const AdapterTensor& tensor, const HostTensor& values) const;
  HostTensor download(const std::string& section, const AdapterTensor& tensor) const;
  void copy(const std::string& from, const std::string& to) const;  // one whole section
  // Binds the parameters of another graph with the same modules.
  void bind(const Graph& graph, Externals& externals, const std::string& section = "p") const;
  std::vector<LoraModule> modules(const std::string& section = "p") const;
  // The same names and sizes with zeros of rank 1, before there is memory.
  std::vector<LoraModule> empty_modules() const;

 private:
  static constexpr const char* start_section = "start";
  const DeviceMemory& memory(const std::string& section) const;
  void add_memory(Device& device);  // memory of one more section, all zero
  void begin_as_factors(uint64_t seed, const BaseWeight& base) const;
  void begin_as_graphs(const BaseWeight& base) const;
  void begin_as_numbers(uint64_t seed) const;
  void take(const AdapterTensor& tensor, const Program& program, const std::string& output) const;
  HostTensor file_values(size_t module, size_t t, const std::string& section) const;  // of its tensor number t
  std::vector<AdaptedModule> adapted_;
  std::vector<AdapterTensor> tensors_;
  std::vector<size_t> first_;
  std::vector<std::string> sections_;
  int64_t section_elements_ = 0;
  Device* device_ = nullptr;
  std::vector<DeviceMemory> memory_;  // of each section
};

}  // namespace lh
