// Adds up what the run will write and compares it with what is free.
#include "cli/preflight.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>

#include "core/bytes.h"
#include "core/error.h"
#include "core/utf8.h"
#include "io/disk_space.h"
#include "io/safetensors.h"
#include "train/metadata.h"

namespace lh {
namespace {

namespace fs = std::filesystem;

constexpr int64_t headers = 64 << 10;  // names and metadata of one file, and a margin

// The part of the path that is there already.
fs::path existing_part(const fs::path& path) {
  std::error_code none;
  fs::path part = path.is_absolute() ? path : fs::absolute(path, none);
  while (part.has_relative_path() && !fs::exists(part, none)) part = part.parent_path();
  return part;
}

// Files of an earlier part of the run: new ones take their place.
int64_t already_used(const fs::path& folder) {
  int64_t bytes = 0;
  std::error_code none;
  for (fs::directory_iterator entry(folder, none), end; !none && entry != end; entry.increment(none))
    if (entry->path().extension() == ".safetensors") bytes += static_cast<int64_t>(entry->file_size(none));
  return bytes;
}

// Bytes that a file's name may have there.
int64_t longest_name(const fs::path& folder) {
  const long most = ::pathconf(folder.c_str(), _PC_NAME_MAX);
  return most > 0 ? most : 255;
}

void require_text(const char* key, const std::string& text) {
  if (const auto bad = invalid_utf8(text))
    fail(Code::config, "{}: byte {} (0x{:02x}) is not valid UTF-8: write it in another way", key, *bad,
         static_cast<unsigned char>(text[*bad]));
}

// What has the name of a file that the run writes, and is none.
void require_files(const fs::path& folder, std::string_view begin, std::string_view end) {
  std::error_code none;
  for (fs::directory_iterator entry(folder, none), last; !none && entry != last; entry.increment(none)) {
    const std::string name = entry->path().filename().string();
    std::error_code failed;
    if (name.starts_with(begin) && name.ends_with(end) && entry->is_directory(failed))
      fail(Code::resource, "{}: a folder stands where the run writes a file: move it away", entry->path().string());
  }
}

// Every call that publishes a file, tried on an empty one. wanted: what is to be written there.
void try_to_publish(const fs::path& folder, const fs::path& wanted) {
  const fs::path file = folder / fmt::format(".lora-host-{}-try.tmp", ::getpid());
  try {
    publish_text(file, "");
  } catch (const Error& error) {
    fail(error.code(), "{}: {}", wanted.string(), error.what());
  }
  std::error_code none;
  fs::remove(file, none);
}

}  // namespace

void check_outputs(const Prepared& p) {
  const Config& c = p.config;
  require_text("name", c.name);
  require_text("trigger_word", c.trigger_word);
  for (const SampleItem& item : c.sample.prompts) require_text("sample.prompts", item.prompt);
  const fs::path folder = c.output_dir(), there = existing_part(folder);
  const std::string longest = fmt::format("{}_{:09}.safetensors", c.name, c.train.steps);
  if (const int64_t most = longest_name(there); static_cast<int64_t>(longest.size()) > most)
    fail(Code::config, "name: files of this run are called `{}`, {} bytes; {} takes {}. Use a shorter name", longest,
         longest.size(), there.string(), most);
  for (const auto& [begin, end] : {std::pair<std::string_view, std::string_view>{c.name, ".safetensors"},
                                   {"metrics.csv", ""},
                                   {"config.yaml", ""},
                                   {"loss.png", ""},
                                   {"before_after.png", ""}})
    require_files(folder, begin, end);
  require_files(folder / "state", "", ".safetensors");
  for (const std::string_view extension : sample_extensions) require_files(folder / "samples", "", extension);
  safetensors_header({}, lora_metadata(p, c.train, c.train.steps).entries);
  try_to_publish(there, folder);
  std::error_code none;
  for (const char* part : {"state", "samples"})
    if (fs::exists(folder / part, none)) try_to_publish(folder / part, folder / part);
}

DiskNeed disk_need(Prepared& p) {
  const Config& c = p.config;
  int64_t saves = c.save.save_every > 0 ? (c.train.steps - 1) / c.save.save_every : 0;  // without the last one
  if (c.save.save_every_n_epochs > 0)
    saves += c.train.steps * p.micro_batches / (c.save.save_every_n_epochs * p.order->batches_per_epoch());
  const int64_t elements = p.plan->adapters->parameter_count();
  DiskNeed need;
  const auto sections =
      static_cast<int64_t>(p.plan->adapters->saved_sections().size()) + (p.plan->ema != nullptr ? 1 : 0);
  need.state = sections * elements * static_cast<int64_t>(sizeof(float)) + p.plan->update_states() + headers;
  need.states = std::min(saves + 1, std::max<int64_t>(c.save.max_step_saves_to_keep, 2) + 1);  // old ones go last
  need.lora = elements * dtype_size(compute_dtype(c.save.dtype)) + headers;
  need.loras = std::min(saves, c.save.max_step_saves_to_keep + 1) + 1;
  need.cache = p.text.bytes_to_cache(p.prompts()) + p.latents.bytes_to_cache(p.cuts());
  if (p.sound) need.cache += p.sound->bytes_to_cache(p.dataset);
  return need;
}

void check_disk(Prepared& p) {
  const fs::path folder = p.config.output_dir(), there = existing_part(folder);
  std::error_code none;
  if (!fs::is_directory(there, none))
    fail(Code::resource, "{}: {} is a file, expected a folder. Choose another training_folder", folder.string(),
         there.string());
  if (::access(there.c_str(), W_OK | X_OK) != 0)
    fail(Code::resource,
         "{}: cannot be written: {}: {}. Give this user write permission there, or choose another "
         "training_folder",
         folder.string(), there.string(), std::strerror(errno));
  const std::optional<int64_t> free = free_disk_bytes(there);
  if (!free) return;  // a file system that does not tell shows it when it is full
  const DiskNeed need = disk_need(p);
  const int64_t at_least = need.state + need.lora + need.cache;  // new files are written before old ones go
  const int64_t needed = std::max(need.total() - already_used(folder) - already_used(folder / "state"), at_least);
  if (needed > *free)
    fail(Code::resource,
         "{}: the run needs {:.1f} MiB of disk, {} has {:.1f} MiB free. Needed: {} training states of {:.1f} MiB, {} "
         "LoRA files of {:.1f} MiB, {:.1f} MiB of encoded images and prompts. Free space there, choose another "
         "training_folder, or lower save.max_step_saves_to_keep",
         folder.string(), mib(needed), there.string(), mib(*free), need.states, mib(need.state), need.loras,
         mib(need.lora), mib(need.cache));
}

}  // namespace lh
