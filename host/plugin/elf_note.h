// The ABI record of a plugin, read from its file without loading it: no code of the plugin runs.
#pragma once

#include <cstdint>
#include <filesystem>

namespace lh {

struct AbiNote {
  uint16_t major = 0, minor_needed = 0;
};

// Finds the note "lora-host" among the PT_NOTE segments of a shared library for this machine. Throws
// lh::Error(Code::plugin) that says what is wrong: not ELF, another class or machine, truncated, no note.
AbiNote read_abi_note(const std::filesystem::path& file);

}  // namespace lh
