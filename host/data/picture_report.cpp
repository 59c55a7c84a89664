#include "data/picture_report.h"

#include <fmt/core.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "core/bytes.h"
#include "core/error.h"
#include "data/codecs.h"
#include "data/image_formats.h"
#include "data/made_with.h"
#include "io/file.h"
#include "io/lora_inspect.h"

namespace lh {

bool is_picture(const std::filesystem::path& path) {
  constexpr int64_t enough = 16;
  std::error_code none;
  if (!std::filesystem::is_regular_file(path, none)) return false;
  const InputFile file(path);
  std::vector<std::byte> begin(static_cast<size_t>(std::min(enough, file.size())));
  file.read(0, begin);
  return format_of(begin) != nullptr;
}

PictureReport inspect_picture(const std::filesystem::path& path) {
  const std::vector<std::byte> file = read_image_file(path);
  const ImageFormat* const format = format_of(file);
  if (format == nullptr) fail(Code::data, "{}: expected an image, found another file", path.string());
  PictureReport report{.format = std::string(format->name), .bytes = static_cast<int64_t>(file.size())};
  try {
    const ImageSize size = image_size(file, path.filename());
    report.width = size.width;
    report.height = size.height;
  } catch (const Error& error) {
    report.problem = error.what();
  }
  try {
    if (format->read() && format->parameters != nullptr) report.parameters = format->parameters(file);
  } catch (const Error& error) {
    report.problem = error.what();
  }
  return report;
}

std::string report_text(const PictureReport& report) {
  std::string out = "  " + report.format;
  if (report.width > 0) out += fmt::format(", {} x {} pixels", report.width, report.height);
  out += fmt::format(", {}\n", size_text(report.bytes));
  if (!report.problem.empty()) out += fmt::format("  not for training: {}\n", printable(report.problem));
  return out + made_with(report.parameters);
}

nlohmann::json report_json(const PictureReport& report) {
  nlohmann::json json{{"format", report.format}, {"bytes", report.bytes}, {"parameters", report.parameters}};
  if (report.width > 0) json["size"] = {report.width, report.height};
  if (!report.problem.empty()) json["problem"] = report.problem;
  return json;
}

}  // namespace lh
