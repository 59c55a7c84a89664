/* The ABI headers as C99, alone and together; with what a plugin in C would write. */
#include "lora_host/lora_host.h"

LH_ABI_NOTE(LH_TARGET_MINOR);

static lh_status start(const lh_host* host, const char* path) {
  (void)path;
  return LH_HAS(host->api, lh_host_api, describe) ? LH_OK : LH_E_UNSUPPORTED;
}
static void stop(void) {}
static const void* factory(const char* id, uint32_t index) {
  (void)id;
  (void)index;
  return 0;
}

extern const lh_plugin_entry lora_host_c_entry;
const lh_plugin_entry lora_host_c_entry = {
    sizeof(lh_plugin_entry), LH_ABI_MAJOR, LH_TARGET_MINOR, "c", "0", "MIT", start, stop, factory};

/* Sizes and offsets that other compilers must agree on (LP64). */
#define SAME(name, condition) typedef char name[(condition) ? 1 : -1]
SAME(value_is_4_bytes, sizeof(lh_value) == 4);
SAME(desc_is_72_bytes, sizeof(lh_desc) == 72);
SAME(attr_is_24_bytes, sizeof(lh_attr) == 24);
SAME(note_is_28_bytes, sizeof(lh_abi_note) == 28);
SAME(entry_is_56_bytes, sizeof(lh_plugin_entry) == 56);
