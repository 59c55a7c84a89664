// A plugin is loaded in a process of its own before it is loaded in this one, once for each content of its file.
#pragma once

#include <filesystem>
#include <string>

namespace lh {

// Loads it, starts it and lists what it offers, in a child with a time limit. Throws lh::Error(Code::plugin) that says
// what went wrong. A file that passed once, with this version of the host, is not tried again: hashes of those are kept
// in ~/.cache/lora-host/tried-plugins.txt.
void try_plugin(const std::filesystem::path& file);

std::string content_hash(const std::filesystem::path& file);  // SHA-256
// That something passed a trial, in the same list: one line of text that identifies it.
bool was_tried(const std::string& line);
void remember_tried(const std::string& line);

}  // namespace lh
