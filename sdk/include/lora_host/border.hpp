// The border that no exception crosses. Nothing here, and nothing else of the wrapper, is kept between calls.
#pragma once

#include <exception>
#include <memory>
#include <new>
#include <string>

#include "lora_host/builder.hpp"

namespace lora_host {

// Runs the body of a callback that gives a status; a thrown Failure or exception becomes api->fail.
template <typename Body>
lh_status guarded(const lh_host_api& api, Body&& body) noexcept {
  try {
    body();
    return LH_OK;
  } catch (const Failure& failure) {
    return api.fail(failure.code(), failure.what());
  } catch (const std::bad_alloc&) {
    return api.fail(LH_E_INTERNAL, "out of memory in the plugin");
  } catch (const std::exception& error) {
    return api.fail(LH_E_INTERNAL, error.what());
  } catch (...) {
    return api.fail(LH_E_INTERNAL, "unknown C++ exception in the plugin");
  }
}

// What `self` points to: the object, and the table that its callbacks without a handle fail through.
template <typename Base>
struct Held {
  const lh_host_api* api;
  std::unique_ptr<Base> object;

  static Held& of(void* self) { return *static_cast<Held*>(self); }
  // The body of a callback that gives a text: NULL when it throws.
  template <typename Body>
  const char* text(Body&& body) noexcept {
    const char* out = nullptr;
    (void)guarded(*api, [&] { out = body(*object); });
    return out;
  }
};

}  // namespace lora_host
