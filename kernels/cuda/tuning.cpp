#include "cuda/tuning.h"

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string_view>
#include <utility>

namespace lk::cuda {

namespace {

constexpr auto write_interval = std::chrono::seconds(5);
constexpr std::string_view digits = "0123456789abcdef";

bool is_algorithm(std::string_view hex) {
  return hex.size() == 2 * Tuning::algorithm_bytes && hex.find_first_not_of(digits) == std::string_view::npos;
}

}  // namespace

Tuning::Tuning(std::string path, std::string owner)
    : path_(std::move(path)), owner_(std::move(owner)), written_(std::chrono::steady_clock::now()) {}

Tuning::~Tuning() { write(); }

bool Tuning::find(const std::string& product, void* algorithm) {
  if (!loaded_) lines_ = read();
  loaded_ = true;
  const auto line = lines_.find(owner_ + '\t' + product);
  if (line == lines_.end()) return false;
  auto* const bytes = static_cast<unsigned char*>(algorithm);
  for (size_t i = 0; i < algorithm_bytes; ++i) {
    const size_t high = digits.find(line->second[2 * i]), low = digits.find(line->second[2 * i + 1]);
    bytes[i] = static_cast<unsigned char>(high * 16 + low);
  }
  return true;
}

void Tuning::keep(const std::string& product, const void* algorithm) {
  const auto* const bytes = static_cast<const unsigned char*>(algorithm);
  std::string hex;
  for (size_t i = 0; i < algorithm_bytes; ++i) {
    hex += digits[bytes[i] / 16];
    hex += digits[bytes[i] % 16];
  }
  added_[owner_ + '\t' + product] = hex;
  if (std::chrono::steady_clock::now() - written_ >= write_interval) write();
}

// A damaged line is skipped, and gone once the file is written again.
Tuning::Lines Tuning::read() const {
  Lines lines;
  if (path_.empty()) return lines;
  std::ifstream file(path_);
  for (std::string line; std::getline(file, line);) {
    const size_t tab = line.rfind('\t');
    if (tab == std::string::npos || std::count(line.begin(), line.end(), '\t') != 3) continue;
    if (is_algorithm(std::string_view(line).substr(tab + 1))) lines[line.substr(0, tab)] = line.substr(tab + 1);
  }
  return lines;
}

// Another process may have written since: its lines are read again and kept. The file is replaced as a whole, so a
// reader never sees half of one; of two that replace it at the same moment one loses its new lines, which costs timing.
void Tuning::write() noexcept try {
  written_ = std::chrono::steady_clock::now();
  if (path_.empty() || added_.empty()) return;
  Lines lines = read();
  for (const auto& [product, algorithm] : added_) lines[product] = algorithm;
  const std::string temporary = path_ + "." + std::to_string(getpid());
  std::ofstream file(temporary, std::ios::trunc);
  for (const auto& [product, algorithm] : lines) file << product << '\t' << algorithm << '\n';
  file.close();
  std::error_code error;
  if (file) {
    std::filesystem::rename(temporary, path_, error);
    if (!error) added_.clear();
  }
  if (!file || error) std::filesystem::remove(temporary, error);
} catch (const std::exception&) {
  // Out of memory, at worst.
}

}  // namespace lk::cuda
