#include "cli/run_view.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>
#include <regex>
#include <sstream>
#include <vector>

#include "config/load.h"
#include "core/error.h"
#include "io/control.h"
#include "io/file.h"

namespace lh {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr int64_t most_bytes = int64_t{1} << 30;
constexpr size_t most_points = 1000;  // of a curve

struct Metrics {
  std::vector<std::string> columns;
  std::vector<std::vector<double>> rows;  // NaN: empty
};

std::vector<std::string> cells_of(const std::string& line) {
  std::vector<std::string> cells;
  std::istringstream in(line);
  for (std::string cell; std::getline(in, cell, ',');) cells.push_back(cell);
  return cells;
}

// A line that is being written is not whole yet, and left out.
Metrics read_metrics(const fs::path& file) {
  Metrics metrics;
  std::error_code none;
  if (!fs::exists(file, none)) return metrics;
  std::istringstream lines(read_text(file, most_bytes));
  std::string line;
  if (!std::getline(lines, line)) return metrics;
  metrics.columns = cells_of(line);
  while (std::getline(lines, line)) {
    if (lines.eof()) break;
    std::vector<std::string> cells = cells_of(line);
    cells.resize(metrics.columns.size());
    std::vector<double> row;
    for (const std::string& cell : cells) {
      double value = 0;
      const auto [end, error] = std::from_chars(cell.data(), cell.data() + cell.size(), value);
      row.push_back(error == std::errc() && end == cell.data() + cell.size() ? value : std::nan(""));
    }
    if (!row.empty() && std::isfinite(row[0])) metrics.rows.push_back(std::move(row));
  }
  return metrics;
}

// Means of as many rows as make the curve short enough; the step is that of the last of them.
json points_of(const Metrics& metrics) {
  const size_t each = (metrics.rows.size() + most_points - 1) / most_points;
  json points = json::array();
  for (size_t first = 0; first < metrics.rows.size(); first += each) {
    const size_t end = std::min(first + each, metrics.rows.size());
    json point = json::array({metrics.rows[end - 1][0]});
    for (size_t column = 1; column < metrics.columns.size(); ++column) {
      double sum = 0;
      int64_t count = 0;
      for (size_t i = first; i < end; ++i)
        if (std::isfinite(metrics.rows[i][column])) {
          sum += metrics.rows[i][column];
          ++count;
        }
      point.push_back(count > 0 ? json(sum / static_cast<double>(count)) : json());
    }
    points.push_back(std::move(point));
  }
  return points;
}

const std::regex& sample_name() {
  static const std::regex name("([0-9]{9})_([0-9]{1,6})\\.(png|webp|mp4)");
  return name;
}

json samples_in(const fs::path& folder) {
  struct Found {
    int64_t index, step;
    std::string file;
  };
  std::vector<Found> found;
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
    const std::string file = entry->path().filename().string();
    if (std::smatch parts; std::regex_match(file, parts, sample_name()))
      found.push_back({std::stoll(parts[2]), std::stoll(parts[1]), file});
  }
  std::ranges::sort(found, {}, [](const Found& f) { return std::pair(f.index, f.step); });
  json samples = json::array();
  for (const Found& f : found) samples.push_back({{"prompt", f.index}, {"step", f.step}, {"file", f.file}});
  return samples;
}

}  // namespace

fs::path newest_run(const fs::path& root) {
  fs::path newest;
  fs::file_time_type time{};
  std::error_code error, none;
  for (fs::directory_iterator entry(root, error), end; !error && entry != end; entry.increment(error)) {
    const fs::file_time_type changed = fs::last_write_time(entry->path() / "metrics.csv", none);
    if (none || (!newest.empty() && changed <= time)) continue;
    newest = entry->path();
    time = changed;
  }
  if (newest.empty())
    fail(Code::config,
         "watch: {} has no folder of a run in it (one with metrics.csv). Name it: lora-host watch RUN_DIR",
         root.string());
  return newest;
}

json run_view(const fs::path& run_folder) {
  json view{{"name", run_folder.filename().string()}, {"live", false}};
  const Metrics metrics = read_metrics(run_folder / "metrics.csv");
  view["columns"] = metrics.columns;
  view["metrics"] = points_of(metrics);
  view["step"] = metrics.rows.empty() ? 0 : static_cast<int64_t>(metrics.rows.back()[0]);
  view["samples"] = samples_in(run_folder / "samples");
  try {
    const Config config = load_config(run_folder / "config.yaml", ConfigNeeds{.model = false, .datasets = false});
    view["steps"] = config.train.steps;
    json prompts = json::array();
    for (const SampleItem& item : config.sample.prompts) prompts.push_back(item.prompt);
    view["prompts"] = std::move(prompts);
  } catch (const Error& e) {
    view["problem"] = e.what();
  }
  try {
    view["status"] = ask_run(run_folder, {"status", {}}).text;
    view["live"] = true;
  } catch (const Error&) {
    view["status"] = "not training now";
  }
  return view;
}

std::optional<fs::path> sample_file(const fs::path& run_folder, const std::string& name) {
  if (!std::regex_match(name, sample_name())) return std::nullopt;
  return run_folder / "samples" / name;
}

}  // namespace lh
