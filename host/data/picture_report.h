// What an image file says of itself, for people and for tools: format, size and how it was made.
#pragma once

#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <string>

namespace lh {

struct PictureReport {
  std::string format;  // "PNG"
  int64_t bytes = 0, width = 0, height = 0;
  std::string problem;     // why it cannot be trained on; empty: it can
  std::string parameters;  // in the words of the program that made it; empty: nothing is said
};

// Does the file begin as an image, whatever its name is? False where there is none.
bool is_picture(const std::filesystem::path& path);
// Throws lh::Error(Code::data) for a file that is none.
PictureReport inspect_picture(const std::filesystem::path& path);
std::string report_text(const PictureReport& report);
nlohmann::json report_json(const PictureReport& report);

}  // namespace lh
