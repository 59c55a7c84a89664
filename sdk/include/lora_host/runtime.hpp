// The host as the plugin sees it: kept from init, and the border that no exception crosses.
#pragma once

#include <exception>
#include <string>
#include <vector>

#include "lora_host/builder.hpp"

namespace lora_host {

// Filled by init. Inline variables of a plugin are its own: plugins are loaded with local symbols.
struct Runtime {
  const lh_host* host = nullptr;
  const lh_host_api* api = nullptr;
  std::string plugin_path;
};
inline Runtime runtime;
// Of hosts that started the plugin before and still use it: a process may have several, the last of which stops first.
inline std::vector<Runtime> earlier;

// Runs the body of a callback that gives a status; a thrown Failure or exception becomes api->fail.
template <typename Body>
lh_status guarded(const lh_host* host, Body&& body) noexcept {
  try {
    body();
    return LH_OK;
  } catch (const Failure& failure) {
    return runtime.api->fail(host, failure.code(), failure.what());
  } catch (const std::bad_alloc&) {
    return runtime.api->fail(host, LH_E_INTERNAL, "out of memory in the plugin");
  } catch (const std::exception& error) {
    return runtime.api->fail(host, LH_E_INTERNAL, error.what());
  } catch (...) {
    return runtime.api->fail(host, LH_E_INTERNAL, "unknown C++ exception in the plugin");
  }
}

inline void log(int32_t level, const std::string& text) { runtime.api->log(runtime.host, level, text.c_str()); }

}  // namespace lora_host
