// The pictures that a run trains on, small, for the page of `watch`.
#pragma once

#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

namespace lh {

struct WatchPicture {
  std::string name, caption;
  std::string thumbnail;  // JPEG; empty where it is no image that can be used
};

struct WatchPictures {
  std::vector<WatchPicture> first;  // as many as are shown
  int64_t total = 0;
  std::string problem;  // why there are none
};

// The datasets are those of the run's config.yaml; paths of theirs that are not whole begin at the current folder, as
// they did for the run. Files are decoded by children of this process: to be called while there are no other threads.
WatchPictures watch_pictures(const std::filesystem::path& run_folder, size_t most);

// {total, problem, pictures: [{name, caption, shown}]}
nlohmann::json pictures_view(const WatchPictures& pictures);

}  // namespace lh
