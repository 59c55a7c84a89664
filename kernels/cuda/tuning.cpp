// Reads the file once, and replaces it as a whole when something is found.
#include "cuda/tuning.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <utility>

#include "choice_lines.h"

namespace lk::cuda {

namespace {

void decode(const std::string& hex, void* algorithm) {
  auto* const bytes = static_cast<unsigned char*>(algorithm);
  for (size_t i = 0; i < algorithm_bytes; ++i) {
    const size_t high = hex_digits.find(hex[2 * i]), low = hex_digits.find(hex[2 * i + 1]);
    bytes[i] = static_cast<unsigned char>(high * 16 + low);
  }
}

std::string encode(const void* algorithm) {
  const auto* const bytes = static_cast<const unsigned char*>(algorithm);
  std::string hex;
  for (size_t i = 0; i < algorithm_bytes; ++i) {
    hex += hex_digits[bytes[i] / 16];
    hex += hex_digits[bytes[i] % 16];
  }
  return hex;
}

// While one lives, other processes and contexts that ask for it wait: who reads the file and writes it again would lose
// what came between. Without effect where files cannot be locked.
class Turn {
 public:
  explicit Turn(const std::string& path)
      : file_(path.empty() ? -1 : ::open((path + ".lock").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666)) {
    while (file_ >= 0 && ::flock(file_, LOCK_EX) != 0 && errno == EINTR) {
    }
  }
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;
  ~Turn() {
    if (file_ >= 0) ::close(file_);
  }

 private:
  int file_;
};

}  // namespace

Tuning::Tuning(std::string path, std::string owner) : path_(std::move(path)), owner_(std::move(owner)) {}

bool Tuning::usable() {
  if (usable_) return *usable_;
  const Turn turn(path_);
  usable_ = !path_.empty() && write(read());
  return *usable_;
}

bool Tuning::find(const std::string& product, void* algorithm) {
  const std::string key = owner_ + '\t' + product;
  if (const auto used = used_.find(key); used != used_.end()) {
    decode(used->second, algorithm);
    return true;
  }
  if (!loaded_) lines_ = read();
  loaded_ = true;
  const auto line = lines_.find(key);
  if (line == lines_.end()) return false;
  decode(line->second, algorithm);
  return true;
}

void Tuning::keep(const std::string& product, void* algorithm) {
  const std::string hex = encode(algorithm);
  const Turn turn(path_);
  Lines lines = read();
  const auto [line, added] = lines.try_emplace(owner_ + '\t' + product, hex);
  if (!added)
    decode(line->second, algorithm);
  else if (!path_.empty())
    write(lines);
}

void Tuning::use(const std::string& product, const void* algorithm) {
  used_[owner_ + '\t' + product] = encode(algorithm);
}

std::string Tuning::used() const {
  std::string text;
  for (const auto& [product, hex] : used_) text += choice_line(product, hex);
  return text;
}

bool Tuning::take(std::string_view lines) {
  Lines taken;
  const bool whole = each_choice(lines, [&](std::string&& product, std::string&& hex) {
    if (product.starts_with(owner_ + '\t')) taken.emplace(std::move(product), std::move(hex));
  });
  if (!whole) return false;
  for (auto& [product, hex] : taken) used_[product] = std::move(hex);
  return true;
}

// A damaged line is skipped, and gone once the file is written again.
Tuning::Lines Tuning::read() const {
  Lines lines;
  if (path_.empty()) return lines;
  std::ifstream file(path_);
  for (std::string text; std::getline(file, text);)
    if (auto line = parse_choice(text)) lines[line->first] = line->second;
  return lines;
}

// The file is replaced as a whole: a reader never sees half of one.
bool Tuning::write(const Lines& lines) const {
  const std::string temporary = path_ + "." + std::to_string(getpid());
  std::ofstream file(temporary, std::ios::trunc);
  for (const auto& [product, hex] : lines) file << choice_line(product, hex);
  file.close();
  std::error_code error;
  if (file) std::filesystem::rename(temporary, path_, error);
  const bool written = file && !error;
  if (!written) std::filesystem::remove(temporary, error);
  return written;
}

}  // namespace lk::cuda
