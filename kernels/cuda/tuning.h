// The algorithms that were fastest, on disk: one line per product (choice_lines.h): another algorithm would give other
// bits. What a process has used it can say in the same lines, which
// another one takes in place of its own file's.
// Processes take turns (a file beside it, .lock), so that none loses what another found. Lines of other devices and
// library versions are kept. Failing to read or write is not an error: it only means timing again.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>

namespace lk::cuda {

class Tuning {
 public:
  // `owner` names device and library; an empty path keeps nothing.
  Tuning(std::string path, std::string owner);
  Tuning(const Tuning&) = delete;
  Tuning& operator=(const Tuning&) = delete;

  bool usable();  // what is kept will be found by later processes
  bool find(const std::string& product, void* algorithm);
  // Writes at once, so that a process that is killed has not used what no other will. Where another process was faster,
  // its choice stays and is given back in `algorithm`.
  void keep(const std::string& product, void* algorithm);

  void use(const std::string& product, const void* algorithm);
  // Lines of what was used here, or taken.
  std::string used() const;
  // Goes before what the file has; lines of other owners are passed over. False where a line is damaged: nothing is
  // taken then.
  bool take(std::string_view lines);

 private:
  using Lines = std::map<std::string, std::string>;  // everything before the last tab -> hex
  Lines read() const;
  bool write(const Lines& lines) const;

  const std::string path_, owner_;
  Lines lines_, used_;
  bool loaded_ = false;
  std::optional<bool> usable_;
};

}  // namespace lk::cuda
