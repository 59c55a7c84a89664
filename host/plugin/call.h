// A call into a plugin: named while it runs, and what comes back from it as an lh::Error.
//
//   Call call(host, "build of role denoiser", model, graph);
//   call.check(call.run([&] { return descriptor.build(...); }));
#pragma once

#include <mutex>
#include <new>
#include <optional>
#include <string>

#include "core/error.h"
#include "plugin/handles.h"

namespace lh {

class Call {
 public:
  // The plugin may use these handles while the call runs, and one call at a time is made for a model.
  Call(const PluginHost& plugin, const std::string& what, ModelContext* model = nullptr, GraphContext* graph = nullptr);
  ~Call();
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;

  // Gives what the body gives; a C++ exception that leaves the plugin is its mistake.
  template <typename Body>
  auto run(Body&& body) {
    const Running running(*this);
    try {
      return body();
    } catch (const std::bad_alloc&) {  // no mistake of the plugin
      throw;
    } catch (const std::exception& error) {
      escaped(error.what());
    } catch (...) {
      escaped("of an unknown type");
    }
  }

  // After a callback that gives a status. Throws lh::Error: data for weights that do not fit, config for a setting that
  // the plugin does not take, plugin for everything else.
  void check(lh_status status) const;
  // After a callback that gives something else: throws where the host saw misuse or the plugin said fail().
  void check() const;
  // Throws lh::Error(Code::plugin) that names plugin and function.
  [[noreturn]] void wrong(const std::string& text) const;

  static Code code_of(lh_status status);
  // What the plugin gave fail(), or else what a function of the host's table had to say; "" where there is nothing.
  const std::string& reason() const { return said_ ? *said_ : failure_; }
  lh_status said_status() const { return said_status_; }  // LH_OK: fail() was not called

  const PluginHost& plugin() const { return plugin_; }
  // The call that this thread is in; nullptr outside of one.
  static Call* current();
  // From the host's table:
  void fail(lh_status code, const char* text);                     // by the plugin
  void note_failure(const std::string& text) { failure_ = text; }  // by a function of the table
  const std::string& last_failure() const { return failure_; }
  void doom(Code code, const std::string& text);  // whatever the plugin gives, the call has failed

 private:
  class Running {
   public:
    explicit Running(Call& call);
    ~Running();
    Running(const Running&) = delete;
    Running& operator=(const Running&) = delete;

   private:
    Call& call_;
    std::unique_lock<std::mutex> lock_;
    Call* outer_;
  };

  [[noreturn]] void escaped(const std::string& text) const;
  void check_handles() const;

  const PluginHost& plugin_;
  std::string label_;  // "plugin 'mine', build of role denoiser"
  ModelContext* model_;
  GraphContext* graph_;
  std::string failure_;
  std::optional<std::string> said_;
  lh_status said_status_ = LH_OK;
  std::optional<Error> doom_;
};

}  // namespace lh
