// Fields of JSON by type; what is wrong is said with the path to it.
#include "data/json_part.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "core/json_text.h"

namespace lh {

std::string JsonPart::where() const {
  return place_.empty() ? "tokenizer " + *file_ : fmt::format("tokenizer {}: {}", *file_, place_);
}

void JsonPart::wrong(const std::string& what) const { fail(Code::data, "{}: {}", where(), what); }

void JsonPart::expected(const std::string& what) const {
  std::string found = value_->dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  if (found.size() > 60) found = found.substr(0, 57) + "...";
  wrong(fmt::format("expected {}, found {}", what, found));
}

void JsonPart::only(std::initializer_list<const char*> keys) const {
  if (!value_->is_object()) expected("an object");
  for (const auto& [key, value] : value_->items())
    if (std::ranges::find(keys, key) == keys.end())
      wrong(fmt::format("`{}` is not supported; known: {}", key, fmt::join(keys, ", ")));
}

JsonPart JsonPart::operator[](const char* key) const {
  if (!value_->is_object()) expected("an object");
  const auto found = value_->find(key);
  if (found == value_->end()) wrong(fmt::format("`{}` is missing", key));
  return {*found, *file_, inner(key)};
}

std::optional<JsonPart> JsonPart::find(const char* key) const {
  if (!value_->is_object()) expected("an object");
  const auto found = value_->find(key);
  if (found == value_->end() || found->is_null()) return std::nullopt;
  return JsonPart(*found, *file_, inner(key));
}

std::vector<JsonPart> JsonPart::items() const {
  if (!value_->is_array()) expected("a list");
  std::vector<JsonPart> parts;
  for (size_t i = 0; i < value_->size(); ++i)
    parts.emplace_back((*value_)[i], *file_, fmt::format("{}[{}]", place_, i));
  return parts;
}

std::string JsonPart::text() const {
  if (!value_->is_string()) expected("text");
  return value_->get<std::string>();
}

int64_t JsonPart::number(int64_t low, int64_t high) const {
  const bool whole =
      value_->is_number_integer() && !(value_->is_number_unsigned() && value_->get<uint64_t>() > INT64_MAX);
  if (!whole || value_->get<int64_t>() < low || value_->get<int64_t>() > high)
    expected(fmt::format("a whole number from {} to {}", low, high));
  return value_->get<int64_t>();
}

bool JsonPart::flag(const char* key, bool absent) const {
  const auto part = find(key);
  if (!part) return absent;
  if (!part->value().is_boolean()) part->expected("true or false");
  return part->value().get<bool>();
}

std::string JsonPart::text(const char* key, const char* absent) const {
  const auto part = find(key);
  return part ? part->text() : absent;
}

nlohmann::json parse_json(const std::string& bytes, const std::string& file) {
  try {
    return parse_json(bytes);
  } catch (const Error& error) {
    fail(error.code(), "tokenizer {}: {} (install it anew)", file, error.what());
  }
}

}  // namespace lh
