// The word that somebody may have meant.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace lh {

// The candidate with the smallest edit distance, or empty when none is near.
std::string nearest_of(std::string_view word, std::span<const std::string_view> candidates);

}  // namespace lh
