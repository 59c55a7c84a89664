// A plugin is loaded in a process of its own before it is loaded in this one, once for each content of its file.
#pragma once

#include <filesystem>
#include <string>

#include "plugin/offers.h"

namespace lh {

// Loads it, starts it, lists what it offers and lets each part of it build once, in a child with a time limit. Throws
// lh::Error(Code::plugin) that says what went wrong. A file that passed once, with this version of the host, is not
// tried again: what it offers is kept in ~/.cache/lora-host/plugins, under the hash of the file.
PluginOffers try_plugin(const std::filesystem::path& file);

std::string content_hash(const std::filesystem::path& file);  // SHA-256
// That something else passed a trial: one line of text that identifies it, in ~/.cache/lora-host/tried-plugins.txt.
bool was_tried(const std::string& line);
void remember_tried(const std::string& line);

}  // namespace lh
