#include "plugin/trial.h"

#include <algorithm>
#include <cstdlib>
#include <set>
#include <sstream>
#include <vector>

#include "core/apart.h"
#include "core/cache_folder.h"
#include "core/error.h"
#include "core/hash.h"
#include "io/file.h"
#include "io/record.h"
#include "plugin/loader.h"
#include "plugin/rehearsal.h"

namespace lh {
namespace {

namespace fs = std::filesystem;

constexpr double time_limit = 30;  // seconds; loading takes milliseconds
constexpr int64_t list_limit = 1 << 20;

fs::path list_file() { return cache_folder().empty() ? fs::path() : cache_folder() / "tried-plugins.txt"; }

}  // namespace

std::string content_hash(const fs::path& path) {
  const InputFile file(path);
  Sha256 hash;
  std::vector<std::byte> buffer;
  for (int64_t at = 0; at < file.size(); at += static_cast<int64_t>(buffer.size())) {
    buffer.resize(static_cast<size_t>(std::min<int64_t>(file.size() - at, 4 << 20)));
    file.read(at, buffer);
    hash.update(buffer);
  }
  return hash.hex();
}

namespace {

// Lines "<hash> <version of the host>". A list that cannot be read is empty: everything is tried.
std::set<std::string> known_lines() {
  std::set<std::string> lines;
  try {
    std::istringstream text(read_text(list_file(), list_limit));
    for (std::string line; std::getline(text, line);) lines.insert(line);
  } catch (const Error&) {
    lines.clear();
  }
  return lines;
}

}  // namespace

bool was_tried(const std::string& line) { return known_lines().contains(line); }

void remember_tried(const std::string& line) {
  if (list_file().empty()) return;
  std::set<std::string> lines = known_lines();
  if (static_cast<int64_t>((lines.size() + 1) * (line.size() + 1)) > list_limit) lines.clear();
  lines.insert(line);
  std::string text;
  for (const std::string& one : lines) text += one + "\n";
  try {
    make_folder(list_file().parent_path());
    publish_text(list_file(), text);
  } catch (const Error&) {
    return;  // it is tried again the next time
  }
}

PluginOffers try_plugin(const fs::path& file) {
  const std::string hash = content_hash(file);
  const RecordId id{"plugin/1", fmt::format("{} {}", hash, LORA_HOST_VERSION)};
  const fs::path known = cache_folder().empty() ? fs::path() : cache_folder() / "plugins" / (hash + ".safetensors");
  if (!known.empty()) {
    const Record record = read_record(known, id);
    if (const auto text = record.metadata.find("offers"); text != record.metadata.end()) try {
        return PluginOffers(text->second);
      } catch (const Error&) {  // of another version of the list
      }
  }
  const std::string text = run_apart(file.string(), time_limit, [&] {
    const Plugin plugin(file);
    rehearse(plugin);
    return PluginOffers(plugin).text();
  });
  if (!known.empty()) try {
      make_folder(known.parent_path());
      write_record(known, id, {}, {{"offers", text}});
    } catch (const Error&) {  // it is tried again the next time
    }
  return PluginOffers(text);
}

}  // namespace lh
