#include "io/lora_scale.h"

#include <fmt/core.h>
#include <unicode/regex.h>
#include <unicode/unistr.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "core/json_text.h"
#include "io/file.h"

namespace lh {
namespace {

using nlohmann::json;

constexpr const char* neighbour_name = "adapter_config.json";
constexpr int64_t default_rank = 8, default_alpha = 8;  // of PEFT's LoraConfig
constexpr int64_t largest_neighbour = 16 << 20;

// PEFT takes a pattern for a module whose name is like it, or ends in something like it behind a dot. Nearly all are
// names. The others come from strangers: one that takes long to match is refused.
bool is_like(const std::string& module, const std::string& pattern, const std::string& where) {
  if (pattern.find_first_of("\\^$|?*+()[]{}") == std::string::npos)
    return module == pattern || module.ends_with("." + pattern);
  UErrorCode status = U_ZERO_ERROR;
  icu::RegexMatcher matcher(icu::UnicodeString::fromUTF8("(.*\\.)?(" + pattern + ")"), 0, status);
  matcher.setTimeLimit(100, status);
  const icu::UnicodeString name = icu::UnicodeString::fromUTF8(module);
  bool like = false;
  if (U_SUCCESS(status)) {  // a matcher without a pattern must not be touched
    matcher.reset(name);
    like = matcher.matches(status);
  }
  if (U_FAILURE(status))
    fail(Code::data, "{}: the pattern '{}' cannot be matched ({}), expected a module's name or a regular expression",
         where, pattern, u_errorName(status));
  return like;
}

double number_of(const json& value, const std::string& where, const std::string& what) {
  if (!value.is_number() || !std::isfinite(value.get<double>()))
    fail(Code::data, "{}: {}: expected a number, found {}", where, what, value.dump());
  return value.get<double>();
}

}  // namespace

LoraScales::LoraScales(const WeightFile& file) {
  std::string text;
  if (const auto found = file.metadata().find(adapter_metadata_entry); found != file.metadata().end()) {
    source_ = adapter_metadata_entry;
    where_ = file.path().string() + ": its metadata " + adapter_metadata_entry;
    text = found->second;
  } else {
    // Files with kohya's entries, lora-host's own among them, have all of their scale in their tensors.
    if (file.metadata().contains("ss_network_dim")) return;
    const std::filesystem::path path = file.path().parent_path() / neighbour_name;
    std::error_code none;
    if (!std::filesystem::is_regular_file(path, none)) return;
    source_ = neighbour_name;
    where_ = path.string();
    text = read_text(path, largest_neighbour);
  }
  json found = json_or_nothing(text);
  if (!found.is_object())
    fail(Code::data, "{}: expected a JSON object, the configuration of PEFT: the scale of its modules is not known",
         where_);
  configuration_ = std::make_shared<const json>(std::move(found));
}

std::optional<double> LoraScales::alpha(const std::string& module, int64_t rank) const {
  // A component's keys stand behind its name; PEFT's own file has no component.
  const std::string component = source_ == adapter_metadata_entry ? module.substr(0, module.find('.')) + "." : "";
  const auto keys = configuration_->get_ptr<const json::object_t*>();
  if (const auto first = keys->lower_bound(component); first == keys->end() || !first->first.starts_with(component))
    return std::nullopt;
  const std::string name = module.substr(component.size());
  const auto find = [&](const char* key) {
    const auto found = keys->find(component + key);
    return found == keys->end() || found->second.is_null() ? nullptr : &found->second;
  };
  const auto number = [&](const char* key, const char* patterns, int64_t usual) {
    if (const json* by_name = find(patterns)) {
      if (!by_name->is_object())
        fail(Code::data, "{}: {}{}: expected an object of patterns, found {}", where_, component, patterns,
             by_name->dump());
      for (const auto& [pattern, value] : by_name->items())
        if (is_like(name, pattern, where_))
          return number_of(value, where_, fmt::format("{}{}.{}", component, patterns, pattern));
    }
    const json* own = find(key);
    return own == nullptr ? static_cast<double>(usual) : number_of(*own, where_, component + key);
  };
  const double expected = number("r", "rank_pattern", default_rank);
  if (expected != static_cast<double>(rank))
    fail(Code::data, "{}: '{}' has matrices of rank {}, the configuration says {}: its scale is not known", where_,
         module, rank, expected);
  const json* root = find("use_rslora");
  const bool by_root = root != nullptr && root->is_boolean() && root->get<bool>();
  return number("lora_alpha", "alpha_pattern", default_alpha) * (by_root ? std::sqrt(static_cast<double>(rank)) : 1);
}

}  // namespace lh
