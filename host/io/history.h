// What changed in a run while it went on, and after which step: history.jsonl in the folder of the run. A resumed run
// repeats it, and `train --replay` does in a new one.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace lh {

struct Change {
  int64_t step = 0;   // steps behind it
  std::string kind;   // one of the names below
  std::string value;  // YAML; of a phase its number; of a break what it is
  bool operator==(const Change&) const = default;
};
inline constexpr std::string_view file_change = "file";    // another configuration, or the first one
inline constexpr std::string_view phase_change = "phase";  // train.phases: the next one begins
inline constexpr std::string_view set_change = "set";      // by hand
inline constexpr std::string_view break_change = "break";  // other data or another course, which was allowed: in words

// In the order in which they happened. Every change of the file is on disk when the call returns.
class History {
 public:
  // An absent file is an empty history. Throws lh::Error(Code::data) with the line that cannot be read. Where another
  // process of the run writes, this one only knows.
  explicit History(std::filesystem::path file, bool writes = true);

  const std::vector<Change>& changes() const { return changes_; }
  void insert(size_t at, Change change);
  void keep(size_t count);  // only the first ones
  void repeat(std::vector<Change> changes);

 private:
  void publish() const;
  std::filesystem::path file_;
  bool writes_;
  std::vector<Change> changes_;
};

}  // namespace lh
