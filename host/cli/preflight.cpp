// Adds up what the run will write and compares it with what is free.
#include "cli/preflight.h"

#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "core/bytes.h"
#include "core/error.h"

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

}  // namespace

DiskNeed disk_need(Prepared& p) {
  const Config& c = p.config;
  const int64_t saves = c.save.save_every > 0 ? (c.train.steps - 1) / c.save.save_every : 0;  // without the last one
  const int64_t elements = p.plan->adapters->parameter_count();
  DiskNeed need;
  need.state = elements * static_cast<int64_t>(sizeof(float)) + p.plan->optimizer->plan().state_bytes() + headers;
  need.states = std::min(saves + 1, std::max<int64_t>(c.save.max_step_saves_to_keep, 2) + 1);  // old ones go last
  need.lora = elements * dtype_size(compute_dtype(c.save.dtype)) + headers;
  need.loras = std::min(saves, c.save.max_step_saves_to_keep + 1) + 1;
  need.cache = p.text.bytes_to_cache(p.prompts()) + p.latents.bytes_to_cache(p.cuts());
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
  struct statvfs info {};
  if (::statvfs(there.c_str(), &info) != 0) return;  // a file system that does not tell shows it when it is full
  const DiskNeed need = disk_need(p);
  const auto free = static_cast<int64_t>(info.f_bavail * info.f_frsize);
  const int64_t at_least = need.state + need.lora + need.cache;  // new files are written before old ones go
  const int64_t needed = std::max(need.total() - already_used(folder) - already_used(folder / "state"), at_least);
  if (needed > free)
    fail(Code::resource,
         "{}: the run needs {:.1f} MiB of disk, {} has {:.1f} MiB free. Needed: {} training states of {:.1f} MiB, {} "
         "LoRA files of {:.1f} MiB, {:.1f} MiB of encoded images and prompts. Free space there, choose another "
         "training_folder, or lower save.max_step_saves_to_keep",
         folder.string(), mib(needed), there.string(), mib(free), need.states, mib(need.state), need.loras,
         mib(need.lora), mib(need.cache));
}

}  // namespace lh
