// The algorithms that were fastest, on disk: one line per product, "device <tab> library <tab> product <tab> hex".
// Lines of other devices and library versions are kept. Failing to read or write is not an error: it only means timing
// again.
#pragma once

#include <chrono>
#include <map>
#include <string>

namespace lk::cuda {

class Tuning {
 public:
  static constexpr size_t algorithm_bytes = 64;

  // `owner` names device and library; an empty path keeps nothing.
  Tuning(std::string path, std::string owner);
  ~Tuning();
  Tuning(const Tuning&) = delete;
  Tuning& operator=(const Tuning&) = delete;

  bool find(const std::string& product, void* algorithm);
  void keep(const std::string& product, const void* algorithm);

 private:
  using Lines = std::map<std::string, std::string>;  // everything before the last tab -> hex
  Lines read() const;
  void write() noexcept;

  const std::string path_, owner_;
  Lines lines_, added_;
  bool loaded_ = false;
  std::chrono::steady_clock::time_point written_;
};

}  // namespace lk::cuda
