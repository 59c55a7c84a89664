// The ABI headers as C++20, and the layout that a plugin relies on.
#include <cstddef>
#include <type_traits>

#include "lora_host/lora_host.h"

static_assert(std::is_standard_layout_v<lh_host_api> && std::is_trivial_v<lh_host_api>);
static_assert(std::is_standard_layout_v<lh_plugin_entry> && std::is_trivial_v<lh_plugin_entry>);
static_assert(sizeof(lh_value) == 4 && sizeof(lh_desc) == 72 && sizeof(lh_attr) == 24 && sizeof(lh_abi_note) == 28);
static_assert(offsetof(lh_desc, dims) == 8 && offsetof(lh_attr, v) == 16);
static_assert(offsetof(lh_abi_note, abi_major) == 24 && offsetof(lh_abi_note, abi_minor_needed) == 26);
static_assert(offsetof(lh_host_api, log) == 8 && offsetof(lh_plugin_entry, id) == 8);

LH_ABI_NOTE(LH_TARGET_MINOR);
