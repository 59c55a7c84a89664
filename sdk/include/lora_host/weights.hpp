// The checkpoint's weights and the sizes of a build, with errors that say which one, what was expected and what was
// found.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lora_host/border.hpp"

namespace lora_host {

using Dims = std::vector<int64_t>;

inline Dims dims_of(const lh_desc& desc) { return Dims(desc.dims, desc.dims + desc.rank); }

// "[3072, 64]"; -1 prints as "*".
inline std::string dims_text(const Dims& dims) {
  std::string text = "[";
  for (size_t i = 0; i < dims.size(); ++i)
    text += (i == 0 ? "" : ", ") + (dims[i] < 0 ? std::string("*") : std::to_string(dims[i]));
  return text + "]";
}

inline lh_desc make_desc(lh_dtype dtype, const Dims& dims) {
  if (dims.size() > LH_MAX_RANK) throw Failure(LH_E_INVALID, "rank of " + dims_text(dims) + " is above 8");
  lh_desc desc{dtype, static_cast<uint32_t>(dims.size()), {}};
  for (size_t i = 0; i < dims.size(); ++i) desc.dims[i] = dims[i];
  return desc;
}

class Weights {
 public:
  explicit Weights(const lh_model_ctx* model) : model_(model) {}

  std::optional<Dims> find(const std::string& name) const {
    lh_desc desc{};
    if (api().weight_find(model_, name.c_str(), &desc) != LH_OK) return std::nullopt;
    return dims_of(desc);
  }
  bool has(const std::string& name) const { return find(name).has_value(); }

  // Shape of a weight that must be there.
  Dims require(const std::string& name) const {
    if (std::optional<Dims> dims = find(name)) return *dims;
    throw Failure(LH_E_MODEL, "missing tensor " + name);
  }
  // Length of an axis of it, which is not nothing.
  int64_t extent(const std::string& name, size_t axis) const {
    const Dims dims = require(name);
    if (axis >= dims.size() || dims[axis] < 1)
      throw Failure(LH_E_MODEL,
                    name + ": expected at least " + std::to_string(axis + 1) + " axes, found shape " + dims_text(dims));
    return dims[axis];
  }
  // ... with the given shape; -1 stands for any length but none.
  Dims require(const std::string& name, const Dims& expected) const {
    std::optional<Dims> found = find(name);
    if (!found) throw Failure(LH_E_MODEL, "missing tensor " + name + " " + dims_text(expected));
    bool fits = found->size() == expected.size();
    for (size_t i = 0; fits && i < expected.size(); ++i)
      fits = expected[i] < 0 ? (*found)[i] > 0 : expected[i] == (*found)[i];
    if (!fits)
      throw Failure(LH_E_MODEL, name + ": expected shape " + dims_text(expected) + ", found " + dims_text(*found));
    return *found;
  }
  // A linear: weight [out, in] and, unless absent is fine, bias [out].
  void require_linear(const std::string& module, int64_t out, int64_t in, bool bias = true) const {
    require(module + ".weight", {out, in});
    if (bias) require(module + ".bias", {out});
  }

  // Throws when a component ("vae", "clip_l") is not there, naming the setting that would give its file.
  void require_component(const std::string& name, const char* setting, std::string_view role) const {
    if (first_with_prefix(name + ":").empty())
      throw Failure(LH_E_MODEL, "role " + std::string(role) + " needs the weights of " + name +
                                    ", which the checkpoint does not hold; give their file as model." + setting);
  }

  // Number of consecutive i from 0 for which `prefix<i>suffix` is there.
  int64_t count(const std::string& prefix, const std::string& suffix) const {
    auto there = [&](int64_t i) { return has(prefix + std::to_string(i) + suffix); };
    int64_t n = 0;
    while (there(n)) ++n;
    return n;
  }
  // First name that starts with `prefix`, "" when there is none.
  std::string first_with_prefix(std::string_view prefix) const {
    const char* name = name_at(api().weight_lower_bound(model_, std::string(prefix).c_str()));
    return name != nullptr && std::string_view(name).starts_with(prefix) ? name : "";
  }
  // All names that start with `prefix`, sorted.
  std::vector<std::string> names(const std::string& prefix = "") const {
    std::vector<std::string> out;
    for (uint64_t i = api().weight_lower_bound(model_, prefix.c_str());; ++i) {
      const char* name = name_at(i);
      if (name == nullptr || !std::string_view(name).starts_with(prefix)) return out;
      out.emplace_back(name);
    }
  }

  // A setting of the user, e.g. "variant".
  std::optional<std::string> setting(const std::string& key) const {
    const char* text = nullptr;
    return given(api().setting(model_, key.c_str(), &text), text);
  }
  // A text file from the component's folder in a diffusers directory ("config.json"); component "" is the folder of the
  // model itself ("model_index.json"). Nothing where there is none: absence() then says what was looked for and where.
  std::optional<std::string> document(const std::string& component, const std::string& name) const {
    const char* text = nullptr;
    return given(api().document(model_, component.empty() ? nullptr : component.c_str(), name.c_str(), &text), text);
  }
  // An entry of the metadata in the component's safetensors files.
  std::optional<std::string> metadata(const std::string& component, const std::string& key) const {
    const char* text = nullptr;
    return given(api().metadata(model_, component.c_str(), key.c_str(), &text), text);
  }
  // Why the last of these gave nothing, for an error of your own.
  std::string absence() const { return api().failure(); }

  // Writes to the host's log; level is LH_LOG_*.
  void log(int32_t level, const std::string& text) const { api().log(nullptr, level, text.c_str()); }

 private:
  const lh_host_api& api() const { return *model_->api; }
  const char* name_at(uint64_t index) const {
    const char* name = nullptr;
    lh_desc desc{};
    return api().weight_at(model_, index, &name, &desc) == LH_OK ? name : nullptr;
  }
  // By reference: a call in the same expression fills the text, before or after an argument would be copied.
  static std::optional<std::string> given(lh_status status, const char* const& text) {
    if (status != LH_OK || text == nullptr) return std::nullopt;
    return std::string(text);
  }

  const lh_model_ctx* model_;
};

// Attributes by name: the sizes of a build, the options of an optimizer or another part.
class Options {
 public:
  Options(const lh_attr* attrs, uint32_t count) : attrs_(attrs, count) {}

  bool has(std::string_view name) const { return find(name) != nullptr; }
  int64_t integer(std::string_view name) const {
    const lh_attr* attr = need(name);
    if (attr->type != LH_ATTR_I64) throw Failure(LH_E_INVALID, std::string(name) + " must be an integer");
    return attr->v.i;
  }
  // Numbers, flags and texts that the host has checked (options.h): those without a default may be absent.
  double real(std::string_view name) const {
    const lh_attr* attr = need(name);
    if (attr->type == LH_ATTR_I64) return static_cast<double>(attr->v.i);
    if (attr->type != LH_ATTR_F64) throw Failure(LH_E_INVALID, std::string(name) + " must be a number");
    return attr->v.f;
  }
  std::optional<double> find_real(std::string_view name) const {
    return has(name) ? std::optional<double>(real(name)) : std::nullopt;
  }
  bool flag(std::string_view name) const { return integer(name) != 0; }
  std::string text(std::string_view name) const {
    const lh_attr* attr = need(name);
    if (attr->type != LH_ATTR_STRING) throw Failure(LH_E_INVALID, std::string(name) + " must be a text");
    return attr->v.s;
  }
  std::vector<double> reals(std::string_view name) const {
    const lh_attr* attr = need(name);
    if (attr->type != LH_ATTR_F64_LIST) throw Failure(LH_E_INVALID, std::string(name) + " must be a list of numbers");
    return std::vector<double>(attr->v.fs, attr->v.fs + attr->count);
  }
  // A list of integers, empty when absent.
  std::vector<int64_t> integers(std::string_view name) const {
    const lh_attr* attr = find(name);
    if (attr == nullptr) return {};
    if (attr->type != LH_ATTR_I64_LIST) throw Failure(LH_E_INVALID, std::string(name) + " must be a list of integers");
    return std::vector<int64_t>(attr->v.is, attr->v.is + attr->count);
  }

 private:
  const lh_attr* find(std::string_view name) const {
    for (const lh_attr& attr : attrs_)
      if (name == attr.name) return &attr;
    return nullptr;
  }
  const lh_attr* need(std::string_view name) const {
    const lh_attr* attr = find(name);
    if (attr == nullptr) throw Failure(LH_E_INVALID, "the host gave no " + std::string(name));
    return attr;
  }
  std::span<const lh_attr> attrs_;
};

// Sizes of a build; every number is at least 1. Beside them may be lists, e.g. `skip_layers` (model.h).
class Sizes {
 public:
  Sizes(const lh_attr* attrs, uint32_t count) : options_(attrs, count) {}
  bool has(std::string_view name) const { return options_.has(name); }
  int64_t operator[](std::string_view name) const {
    int64_t size = options_.integer(name);
    if (size < 1) throw Failure(LH_E_INVALID, "size " + std::string(name) + " is " + std::to_string(size));
    return size;
  }
  std::vector<int64_t> list(std::string_view name) const { return options_.integers(name); }

 private:
  Options options_;
};

}  // namespace lora_host
