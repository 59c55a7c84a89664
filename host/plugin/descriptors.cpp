// Required fields of each kind of descriptor.
#include "plugin/descriptors.h"

#include <algorithm>
#include <cstddef>
#include <string_view>
#include <vector>

#include "core/error.h"

namespace lh {
namespace {

namespace fs = std::filesystem;

// The fields that a descriptor must have; none is newer than the oldest minor number that this host takes.
struct Field {
  const char* name;
  bool there;
};

std::vector<Field> required_fields(const lh_model& m) {
  return {{"checkpoint", m.checkpoint != nullptr},
          {"probe", m.probe != nullptr},
          {"create", m.create != nullptr},
          {"destroy", m.destroy != nullptr},
          {"recipe", m.recipe != nullptr},
          {"role", m.role != nullptr},
          {"build", m.build != nullptr}};
}

std::vector<Field> required_fields(const lh_optimizer& o) {
  return {{"create", o.create != nullptr}, {"destroy", o.destroy != nullptr}, {"flags", o.flags != nullptr},
          {"passes", o.passes != nullptr}, {"state", o.state != nullptr},     {"build_pass", o.build_pass != nullptr}};
}

std::vector<Field> required_fields(const lh_adapter& a) {
  return {{"create", a.create != nullptr},
          {"destroy", a.destroy != nullptr},
          {"form", a.form != nullptr},
          {"tensor", a.tensor != nullptr}};
}

std::vector<Field> required_fields(const lh_sampler& s) {
  return {{"objectives", s.objectives != nullptr && s.objectives[0] != nullptr},
          {"space (LH_SPACE_*)", s.space >= LH_SPACE_SIGMA && s.space <= LH_SPACE_LOG_SNR},
          {"create", s.create != nullptr},
          {"destroy", s.destroy != nullptr},
          {"stages", s.stages != nullptr},
          {"carried", s.carried != nullptr},
          {"scalar", s.scalar != nullptr},
          {"scalar_values", s.scalar_values != nullptr},
          {"build_stage", s.build_stage != nullptr}};
}

std::vector<Field> required_fields(const lh_schedule& s) {
  return {{"objectives", s.objectives != nullptr && s.objectives[0] != nullptr},
          {"create", s.create != nullptr},
          {"destroy", s.destroy != nullptr},
          {"levels", s.levels != nullptr}};
}

// least_size: of the struct in that minor number.
template <typename T>
void check(const T& descriptor, uint32_t least_size, const fs::path& path, const char* factory, uint32_t index) {
  if (!LH_HAS(&descriptor, T, id) || descriptor.id == nullptr || descriptor.id[0] == '\0')
    fail(Code::plugin, "{}: {} number {} has no id", path.string(), factory, index);
  if (!is_plain(descriptor.id))
    fail(Code::plugin, "{}: {} number {} has an id with characters that cannot be printed", path.string(), factory,
         index);
  if (descriptor.struct_size < least_size)
    fail(Code::plugin, "{}: {} '{}' has struct_size {}, expected at least {}; rebuild the plugin with this host's SDK",
         path.string(), factory, descriptor.id, descriptor.struct_size, least_size);
  for (const Field& field : required_fields(descriptor))
    if (!field.there) fail(Code::plugin, "{}: {} '{}' has no {}", path.string(), factory, descriptor.id, field.name);
}

}  // namespace

bool is_plain(const char* text) {
  const std::string_view view = text;
  return view.size() <= 256 && std::ranges::all_of(view, [](char c) { return c >= ' ' && c <= '~'; });
}

void check_descriptor(const lh_model& model, const fs::path& path, const char* factory, uint32_t index) {
  check(model, offsetof(lh_model, build) + sizeof(model.build), path, factory, index);
}

void check_descriptor(const lh_optimizer& rule, const fs::path& path, const char* factory, uint32_t index) {
  check(rule, offsetof(lh_optimizer, build_evaluation) + sizeof(rule.build_evaluation), path, factory, index);
  constexpr double largest = 100;  // that train.lr may be
  if (LH_HAS(&rule, lh_optimizer, learning_rate) && !(rule.learning_rate >= 0 && rule.learning_rate <= largest))
    fail(Code::plugin, "{}: {} '{}' has learning_rate {}, expected 0 to {}", path.string(), factory, rule.id,
         rule.learning_rate, largest);
}

void check_descriptor(const lh_adapter& adapter, const fs::path& path, const char* factory, uint32_t index) {
  check(adapter, offsetof(lh_adapter, build_initial) + sizeof(adapter.build_initial), path, factory, index);
}

void check_descriptor(const lh_sampler& sampler, const fs::path& path, const char* factory, uint32_t index) {
  check(sampler, offsetof(lh_sampler, build_stage) + sizeof(sampler.build_stage), path, factory, index);
}

void check_descriptor(const lh_schedule& schedule, const fs::path& path, const char* factory, uint32_t index) {
  check(schedule, offsetof(lh_schedule, levels) + sizeof(schedule.levels), path, factory, index);
}

}  // namespace lh
