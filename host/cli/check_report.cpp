#include "cli/check_report.h"

#include <fmt/core.h>

#include <nlohmann/json.hpp>

#include "io/lora_inspect.h"

namespace lh {
namespace {

constexpr int64_t most_lines = 8;  // of one kind of finding; the page and --json have all

std::string findings_text(const DatasetCheck& check, Finding finding) {
  std::string lines;
  int64_t shown = 0;
  const int64_t count = check.count(finding);
  for (size_t i = 0; i < check.pictures.size() && shown < most_lines; ++i)
    for (const CheckedPicture::Note& note : check.pictures[i].notes) {
      if (note.finding != finding) continue;
      lines += fmt::format("    {}: {}\n", printable(check.name(i)), printable(note.text));
      ++shown;
      break;
    }
  if (count > shown) lines += fmt::format("    ... and {} more\n", count - shown);
  return fmt::format("  {}: {}\n{}", name_of(finding), count, lines);
}

nlohmann::json names_of(const DatasetCheck& check, const std::vector<std::vector<size_t>>& groups) {
  nlohmann::json json = nlohmann::json::array();
  for (const std::vector<size_t>& group : groups) {
    nlohmann::json files = nlohmann::json::array();
    for (const size_t picture : group) files.push_back(check.pictures[picture].path.string());
    json.push_back(std::move(files));
  }
  return json;
}

nlohmann::json picture_json(const CheckedPicture& picture) {
  nlohmann::json buckets = nlohmann::json::array(), findings = nlohmann::json::array();
  for (const Bucket& bucket : picture.buckets) buckets.push_back({bucket.width, bucket.height});
  for (const CheckedPicture::Note& note : picture.notes)
    findings.push_back({{"kind", name_of(note.finding)}, {"text", note.text}, {"stops", note.stops}});
  return {{"file", picture.path.string()},  {"dataset", picture.dataset},    {"width", picture.size.width},
          {"height", picture.size.height},  {"buckets", std::move(buckets)}, {"caption", picture.caption},
          {"words", picture.words},         {"tokens", picture.tokens},      {"validation", picture.validation},
          {"findings", std::move(findings)}};
}

}  // namespace

std::string check_text(const DatasetCheck& check) {
  std::string out = fmt::format("{} pictures in {} dataset(s): {} are trained on", check.pictures.size(),
                                check.datasets.size(), check.trained_on());
  if (check.validation > 0) out += fmt::format(", {} samples are set apart for validation", check.validation);
  out += fmt::format("\nbuckets: {}\n", check.buckets.size());
  for (const auto& [bucket, samples] : check.buckets)
    out += fmt::format("  {:>11}  {} samples an epoch\n", text_of(bucket), samples);
  if (check.batches > 0) out += fmt::format("  {} batches an epoch\n", check.batches);
  if (!check.problems.empty()) out += "what stops the training:\n";
  for (const std::string& problem : check.problems) out += fmt::format("  {}\n", problem);
  std::string findings;
  for (const Finding finding : all_findings)
    if (check.count(finding) > 0) findings += findings_text(check, finding);
  if (!check.not_read.empty()) {
    findings += fmt::format("  not read: {}\n", check.not_read.size());
    for (size_t i = 0; i < check.not_read.size() && i < most_lines; ++i)
      findings += fmt::format("    {}\n", printable(check.not_read[i]));
    if (check.not_read.size() > most_lines)
      findings += fmt::format("    ... and {} more\n", check.not_read.size() - most_lines);
  }
  for (const std::string& remark : check.remarks) findings += fmt::format("  {}\n", remark);
  if (!findings.empty()) out += "worth a look:\n" + findings;
  return check.problems.empty() && findings.empty() ? out + "nothing to remark\n" : out;
}

nlohmann::json check_json(const DatasetCheck& check) {
  nlohmann::json datasets = nlohmann::json::array(), buckets = nlohmann::json::array();
  nlohmann::json pictures = nlohmann::json::array(), findings = nlohmann::json::object();
  for (const DatasetConfig& dataset : check.datasets)
    datasets.push_back({{"folder_path", dataset.folder_path.string()}, {"resolution", dataset.resolution}});
  for (const auto& [bucket, samples] : check.buckets)
    buckets.push_back(
        {{"width", bucket.width}, {"height", bucket.height}, {"frames", bucket.frames}, {"samples", samples}});
  for (const CheckedPicture& picture : check.pictures) pictures.push_back(picture_json(picture));
  for (const Finding finding : all_findings) findings[std::string(name_of(finding))] = check.count(finding);
  return {{"stops", !check.problems.empty()},
          {"problems", check.problems},
          {"remarks", check.remarks},
          {"datasets", std::move(datasets)},
          {"trained_on", check.trained_on()},
          {"validation_samples", check.validation},
          {"buckets", std::move(buckets)},
          {"batches", check.batches},
          {"findings", std::move(findings)},
          {"same", names_of(check, check.same)},
          {"alike", names_of(check, check.alike)},
          {"not_read", check.not_read},
          {"pictures", std::move(pictures)}};
}

}  // namespace lh
