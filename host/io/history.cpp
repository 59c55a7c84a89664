// One JSON object a line; the file is written anew with each change. A line's digest is over the line before, too, so
// that no line can be changed, exchanged or taken out of the middle.
#include "io/history.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <sstream>
#include <utility>

#include "core/error.h"
#include "core/hash.h"
#include "io/file.h"

namespace lh {
namespace {

constexpr std::array kinds{file_change, phase_change, set_change, break_change};
constexpr int64_t most_bytes = 64 << 20;

constexpr const char* digest_entry = "digest";

std::string digest_of(const std::string& before, const nlohmann::ordered_json& change) {
  return Sha256().update(before).update(change.dump()).hex().substr(0, 16);
}

nlohmann::ordered_json json_of(const Change& change) { return {{"step", change.step}, {change.kind, change.value}}; }

// before: the digest of the line before, and then this one's; both empty where the file has none, as an older program
// or a person writes it.
Change read_line(const std::string& line, bool first, std::string& before) {
  auto json = nlohmann::json::parse(line);
  const std::string digest = json.value(digest_entry, std::string());
  json.erase(digest_entry);
  if (!json.at("step").is_number_integer()) throw std::invalid_argument("its step is no whole number");
  Change change{.step = json.at("step"), .kind = {}, .value = {}};
  for (const std::string_view kind : kinds)
    if (json.contains(kind)) {
      change.kind = kind;
      change.value = json.at(kind);
    }
  if (change.kind.empty() || json.size() != 2 || change.step < 0)
    throw std::invalid_argument("expected a step and one of file, phase, set, break");
  if (first ? !digest.empty() && digest != digest_of({}, json_of(change))
            : before.empty() != digest.empty() || (!digest.empty() && digest != digest_of(before, json_of(change))))
    throw std::invalid_argument("it does not match its digest: the line, or one before it, was changed");
  before = digest;
  return change;
}

}  // namespace

History::History(std::filesystem::path file, bool writes) : file_(std::move(file)), writes_(writes) {
  if (!std::filesystem::exists(file_)) return;
  std::istringstream lines(read_text(file_, most_bytes));
  int64_t number = 1;
  std::string digest;
  for (std::string line; std::getline(lines, line); ++number) try {
      changes_.push_back(read_line(line, number == 1, digest));
      if (changes_.size() > 1 && changes_.back().step < changes_[changes_.size() - 2].step)
        throw std::invalid_argument("its step is below that of the line before");
    } catch (const std::exception& error) {
      fail(Code::data,
           "{}:{}: this is no line of a history: {}. The run cannot be continued as it was; remove the file to go on "
           "with what the configuration says",
           file_.string(), number, error.what());
    }
}

void History::publish() const {
  if (!writes_) return;
  std::string text, digest;
  for (const Change& change : changes_) {
    auto line = json_of(change);
    digest = digest_of(digest, line);
    line[digest_entry] = digest;
    text += line.dump() + "\n";
  }
  publish_text(file_, text);
}

void History::insert(size_t at, Change change) {
  changes_.insert(changes_.begin() + static_cast<std::ptrdiff_t>(at), std::move(change));
  publish();
}

void History::keep(size_t count) {
  if (count >= changes_.size()) return;
  changes_.resize(count);
  publish();
}

void History::repeat(std::vector<Change> changes) {
  changes_ = std::move(changes);
  publish();
}

}  // namespace lh
