// Where files lie that make later starts faster and that may be deleted at any time.
#pragma once

#include <filesystem>

namespace lh {

// $XDG_CACHE_HOME/lora-host, or ~/.cache/lora-host; empty where there is no home. It need not be there.
std::filesystem::path cache_folder();

}  // namespace lh
