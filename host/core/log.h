// Messages on stderr. LORA_LOG=trace|debug|info|warning|error|off sets the level, LORA_VERBOSE asks for explanations by
// topic: graph (what was built), plan (memory plan), dispatch (which kernel ran and why), memory, time.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace lh {

void init_log();

// Whether LORA_VERBOSE names the topic ("plan,time" or "plan|time"). Reads the environment once.
bool verbose(std::string_view topic);

// The topics of a LORA_VERBOSE text; unknown words go to `unknown`.
std::vector<std::string> parse_topics(std::string_view text, std::vector<std::string>& unknown);

}  // namespace lh
