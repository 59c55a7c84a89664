// What `lora-host check` tells: as text, for tools, and as a page.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "data/check_dataset.h"

namespace lh {

std::string check_text(const DatasetCheck& check);
nlohmann::json check_json(const DatasetCheck& check);
// One HTML file that needs no other: thumbnails are in it, scripts are not.
std::string check_page(const DatasetCheck& check, const std::string& title);

}  // namespace lh
