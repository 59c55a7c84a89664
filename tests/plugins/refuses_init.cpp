// A plugin whose init fails, made without the C++ wrapper's macro.
#include "lora_host/lora_host.h"

static lh_status refuse(const lh_host* host, const char*) { return host->api->fail(LH_E_UNSUPPORTED, "not today"); }
static void stop() {}
static const void* no_factory(const char*, uint32_t) { return nullptr; }

LH_ABI_NOTE(LH_TARGET_MINOR);
extern "C" {
LH_EXPORT extern const lh_plugin_entry lh_plugin;
}
const lh_plugin_entry lh_plugin = {
    sizeof(lh_plugin_entry), LH_ABI_MAJOR, LH_TARGET_MINOR, "refuses", "0", "MIT", refuse, stop, no_factory};
