// Everything that this plugin fills ends where it ended in ABI 0.2, directly in front of a page that nobody may read: a
// host that reads further crashes.
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>

#include "lora_host/lora_host.hpp"

namespace {

using lora_host::Graph;
using lora_host::Value;

// A copy of the first `size` bytes, for good.
template <typename T>
const T* cut(T whole, size_t size) {
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  void* memory = mmap(nullptr, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  char* end = static_cast<char*>(memory) + page;
  whole.struct_size = static_cast<uint32_t>(size);
  std::memcpy(end - size, &whole, size);
  mprotect(end, page, PROT_NONE);
  return reinterpret_cast<const T*>(end - size);
}

#define SIZE(type, last_field) (offsetof(type, last_field) + sizeof(type::last_field))

class CutModel : public lora_host::Model {
 public:
  explicit CutModel(const lora_host::Weights&) {}
  static int32_t probe(const lora_host::Weights&) { return 0; }
  const char* recipe() const override { return ""; }
  const char* role(uint32_t) const override { return nullptr; }
  void build(Graph&, std::string_view, const lora_host::Sizes&) const override {}
};
constexpr const char* checkpoint_yaml =
    "components:\n  denoiser: {config: name_or_path, prefixes: [''], marker: cut_structs.weight}\n";
constexpr lh_model model = lora_host::model<CutModel>("cut_model", checkpoint_yaml);

class CutOptimizer : public lora_host::Optimizer {
 public:
  explicit CutOptimizer(const lora_host::Options&) {}
  void build_pass(lora_host::UpdateGraph& g, uint32_t, const lora_host::Parameter&) const override {
    g.set("p", g.sub(g.p(), g.g()));
  }
};
constexpr lh_optimizer optimizer = lora_host::optimizer<CutOptimizer>("cut_optimizer", nullptr);

constexpr const char* objectives[] = {"flow", nullptr};
struct CutSampler : lora_host::Sampler {
  explicit CutSampler(const lora_host::Options&) {}
  void build(Graph& g, uint32_t, const lora_host::Dims& latents) const override {
    g.output("x", g.input("denoised", latents));
  }
};
constexpr lh_sampler sampler =
    lora_host::sampler<CutSampler>({.id = "cut_sampler", .objectives = objectives, .space = LH_SPACE_SIGMA});
struct CutSchedule : lora_host::Schedule {
  explicit CutSchedule(const lora_host::Options&) {}
  lora_host::Levels levels(const lora_host::Facts&) const override { return {{1, 0.5, 0}}; }
};
constexpr lh_schedule schedule = lora_host::schedule<CutSchedule>({.id = "cut_schedule", .objectives = objectives});

const void* factory(const char* id, uint32_t index) {
  static const lh_model* cut_model = cut(model, SIZE(lh_model, build));
  static const lh_optimizer* cut_optimizer = cut(optimizer, SIZE(lh_optimizer, build_evaluation));
  static const lh_sampler* cut_sampler = cut(sampler, SIZE(lh_sampler, build_stage));
  static const lh_schedule* cut_schedule = cut(schedule, SIZE(lh_schedule, levels));
  if (index > 0) return nullptr;
  if (std::strcmp(id, LH_MODEL_FACTORY) == 0) return cut_model;
  if (std::strcmp(id, LH_OPTIMIZER_FACTORY) == 0) return cut_optimizer;
  if (std::strcmp(id, LH_SAMPLER_FACTORY) == 0) return cut_sampler;
  return std::strcmp(id, LH_SCHEDULE_FACTORY) == 0 ? cut_schedule : nullptr;
}

LH_ABI_NOTE(LH_TARGET_MINOR);

}  // namespace

extern "C" {
LH_EXPORT extern const lh_plugin_entry lh_plugin;
}
const lh_plugin_entry lh_plugin = {SIZE(lh_plugin_entry, factory),
                                   LH_ABI_MAJOR,
                                   LH_TARGET_MINOR,
                                   "cut_structs",
                                   "0",
                                   "MIT",
                                   lora_host::start,
                                   lora_host::stop,
                                   factory};
