// Tensors kept on disk under a content key, so that encoders run once for each image and prompt. An entry is a record
// (io/record.h): one that was changed, exchanged with another or put there by somebody else is made again. What was
// read whole before and has not been touched since is known to be well (io/seen_files.h), so that a run with many
// entries looks at its files and does not read them; whenever one is used, all of it is checked.
#pragma once

#include <filesystem>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "core/tensor.h"
#include "io/seen_files.h"

namespace lh {

class TensorCache {
 public:
  // Shared: an entry stays as long as it is used, whatever the cache keeps of it.
  using Entry = std::shared_ptr<const NamedTensors>;
  // An empty folder keeps everything in memory only. kind: of the records, with a revision ("latents/1"). Of what is on
  // disk, so many bytes stay in memory, those that were used last.
  TensorCache(std::filesystem::path folder, std::string kind, int64_t most_kept = int64_t{256} << 20);
  // What is wrong with the names, types, shapes or values of an entry; empty: nothing.
  using Check = std::function<std::string(const NamedTensors&)>;
  // nullptr when the key is unknown. A file that is not what was put there counts as unknown, with a warning.
  Entry find(const std::string& key, const Check& check);
  // Where something else than a file stands in the entry's place, it is kept in memory only, with a warning.
  Entry put(const std::string& key, NamedTensors tensors);
  // Whether find() would find it, which is not read where it is known to be well.
  bool sound(const std::string& key, const Check& check);
  // Shapes of an entry on disk that is known to be well, by name.
  std::optional<std::map<std::string, Shape>> shapes(const std::string& key);
  // find() will be asked for it soon: the system reads it ahead, where it is not in memory.
  void will_need(const std::string& key) const;
  // What is known is kept for the next run.
  void save_seen() { seen_.save(); }
  bool on_disk() const { return !folder_.empty(); }
  const std::filesystem::path& folder() const { return folder_; }
  bool contains(const std::string& key) const;
  int64_t kept() const { return kept_bytes_; }  // of what is on disk

 private:
  struct Kept {
    Entry entry;
    std::list<std::string>::iterator place;  // in the order of use; the end where it is in memory only
  };
  std::filesystem::path file_of(const std::string& key) const { return folder_ / (key + ".safetensors"); }
  Entry keep(const std::string& key, NamedTensors tensors, bool in_file);
  std::filesystem::path folder_;
  std::string kind_;
  int64_t most_kept_, kept_bytes_ = 0;
  std::map<std::string, Kept> kept_;
  std::list<std::string> order_;  // keys, the one that was used last in front
  SeenFiles seen_;
};

}  // namespace lh
