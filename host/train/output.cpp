// Each file is written whole or not at all; old ones go after new ones are there.
#include "train/output.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <sstream>

#include "core/error.h"
#include "train/prepare.h"

namespace lh {
namespace {

// The last column is there where images are set apart for validation, and empty in steps without it.
std::string header(const Config& config) {
  return config.train.validation_split > 0 ? "step,loss,lr,grad_norm,validation_loss\n" : "step,loss,lr,grad_norm\n";
}

struct Row {
  int64_t step;
  double loss;
  std::string text;
};

std::vector<Row> read_rows(const std::filesystem::path& file) {
  std::vector<Row> rows;
  if (!std::filesystem::exists(file)) return rows;
  std::istringstream lines(read_text(file, int64_t{1} << 30));
  std::string line;
  while (std::getline(lines, line)) {
    Row row{0, 0, line + "\n"};
    const char* end = line.data() + line.size();
    const auto step = std::from_chars(line.data(), end, row.step);
    if (step.ec != std::errc{} || step.ptr == end || *step.ptr != ',') continue;
    if (std::from_chars(step.ptr + 1, end, row.loss).ec == std::errc{}) rows.push_back(std::move(row));
  }
  return rows;
}

int open_or_fail(const std::filesystem::path& path, int flags) {
  const int fd = ::open(path.c_str(), flags | O_CLOEXEC, 0644);
  if (fd < 0) fail(Code::resource, "{}: cannot be opened for writing: {}", path.string(), std::strerror(errno));
  return fd;
}

}  // namespace

Output::Output(const Config& config, int64_t resumed_step) : config_(config), folder_(config.output_dir()) {
  std::string kept = header(config);
  for (const Row& row : read_rows(folder_ / "metrics.csv"))
    if (row.step <= resumed_step) kept += row.text;
  publish_text(folder_ / "metrics.csv", kept);
  metrics_ = open_or_fail(folder_ / "metrics.csv", O_WRONLY | O_APPEND);
  events_ = std::make_unique<EventFile>(folder_ / "tensorboard");
}

Output::~Output() { ::close(metrics_); }

void Output::metrics(int64_t step, const StepMetrics& values) {
  std::string row = fmt::format("{},{:.9g},{:.9g},{:.9g}", step, values.loss, values.lr, values.grad_norm);
  if (config_.train.validation_split > 0)
    row += values.validation_loss ? fmt::format(",{:.9g}", *values.validation_loss) : ",";
  row += '\n';
  if (const ssize_t put = ::write(metrics_, row.data(), row.size()); put != static_cast<ssize_t>(row.size()))
    fail(Code::resource, "{}: cannot be written: {}", (folder_ / "metrics.csv").string(),
         std::strerror(put < 0 ? errno : ENOSPC));  // a part of a row: the disk is full
  events_->scalar("loss", step, static_cast<float>(values.loss));
  events_->scalar("lr", step, static_cast<float>(values.lr));
  events_->scalar("grad_norm", step, static_cast<float>(values.grad_norm));
  if (values.validation_loss) events_->scalar("validation_loss", step, static_cast<float>(*values.validation_loss));
}

std::optional<std::filesystem::path> Output::found_sample(int64_t step, size_t index) const {
  for (const std::string_view extension : sample_extensions) {
    std::filesystem::path path = folder_ / "samples" / fmt::format("{:09}_{}{}", step, index, extension);
    std::error_code none;
    if (std::filesystem::is_regular_file(path, none)) return path;
  }
  return {};
}

void Output::sample(int64_t step, size_t index, const Sampled& sampled) {
  // First: the file says that the sample was made.
  events_->image(fmt::format("sample_{}", index), step, sampled.frames.front());
  write_sample(folder_ / "samples" / fmt::format("{:09}_{}{}", step, index, sample_extension(sampled.kind())), sampled);
}

bool Output::has_sample(int64_t step, size_t index) const { return found_sample(step, index).has_value(); }

void Output::sync_metrics() const {
  if (::fdatasync(metrics_) != 0 && errno != EINVAL)
    fail(Code::resource, "{}: cannot be written: {}", (folder_ / "metrics.csv").string(), std::strerror(errno));
}

std::filesystem::path Output::lora_path(int64_t step) const {
  return folder_ / fmt::format("{}_{:09}.safetensors", config_.name, step);
}

std::filesystem::path Output::asked_sample(int64_t step, const Sampled& sampled) {
  const std::string_view extension = sample_extension(sampled.kind());
  for (int64_t i = 0;; ++i)
    if (const auto path = folder_ / "samples" / fmt::format("asked_{:09}_{}{}", step, i, extension);
        !std::filesystem::exists(path)) {
      write_sample(path, sampled);
      return path;
    }
}

std::filesystem::path Output::lora(int64_t step, bool final, const std::vector<LoraModule>& modules,
                                   const CheckpointSpec& spec, const LoraMetadata& metadata) const {
  std::filesystem::path path = final ? folder_ / (config_.name + ".safetensors") : lora_path(step);
  write_lora(path, modules, spec, config_.save.format, compute_dtype(config_.save.dtype), metadata);
  return path;
}

void Output::prune_loras(std::set<int64_t>& steps) {
  while (static_cast<int64_t>(steps.size()) > config_.save.max_step_saves_to_keep)
    not_removed_.insert(steps.extract(steps.begin()));
  std::erase_if(not_removed_, [&](int64_t step) { return remove_old(lora_path(step)); });
}

void Output::loss_curve() const {
  std::vector<std::pair<double, double>> points;
  for (const Row& row : read_rows(folder_ / "metrics.csv")) points.emplace_back(row.step, row.loss);
  if (points.size() > 1) write_png(folder_ / "loss.png", line_chart(points, config_.name + ": loss"));
}

std::optional<std::filesystem::path> Output::comparison(int64_t step, const std::vector<std::string>& prompts) const {
  std::vector<std::vector<Image>> rows;
  for (size_t i = 0; i < prompts.size(); ++i) {
    const auto before = found_sample(0, i), after = found_sample(step, i);
    if (!before || !after) return {};
    rows.push_back({first_of_sample(*before), first_of_sample(*after)});
  }
  if (rows.empty()) return {};
  const std::filesystem::path path = folder_ / "before_after.png";
  write_png(path, image_grid(rows, {"before", "after"}, prompts));
  return path;
}

}  // namespace lh
