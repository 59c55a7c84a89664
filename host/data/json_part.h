// A part of a JSON file together with its place, so that what is wrong with it can be named.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

namespace lh {

class JsonPart {
 public:
  // Both must outlive the part. `file` is what messages begin with.
  JsonPart(const nlohmann::json& value, const std::string& file, std::string place = {})
      : value_(&value), file_(&file), place_(std::move(place)) {}

  const nlohmann::json& value() const { return *value_; }
  std::string where() const;  // "tokenizer FILE: PLACE"
  [[noreturn]] void wrong(const std::string& what) const;
  [[noreturn]] void expected(const std::string& what) const;  // and says what was found

  // Throws when it is no object, or has another key.
  void only(std::initializer_list<const char*> keys) const;
  JsonPart operator[](const char* key) const;           // must be there
  std::optional<JsonPart> find(const char* key) const;  // nothing where it is missing or null
  std::vector<JsonPart> items() const;                  // of an array
  std::string text() const;
  int64_t number(int64_t low, int64_t high) const;
  bool flag(const char* key, bool absent) const;  // a member
  std::string text(const char* key, const char* absent) const;

 private:
  std::string inner(const std::string& key) const { return place_.empty() ? key : place_ + "." + key; }
  const nlohmann::json* value_;
  const std::string* file_;
  std::string place_;
};

// Throws lh::Error(Code::data) with the file's name and the parser's reason.
nlohmann::json parse_json(const std::string& bytes, const std::string& file);

}  // namespace lh
