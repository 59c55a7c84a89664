// A live run can be spoken to through a socket in its folder (`lora-host ctl`): one request, one answer. Only its owner
// (or root) is listened to.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <utility>  // before Boost 1.74, which uses std::exchange without it
#include <vector>

namespace lh {

struct ControlRequest {
  std::string command;  // "set"
  std::vector<std::string> arguments;
};

// A request as its line says it, {"command": "set", "arguments": ["lr=1e-4"]}; nothing: the line is no request.
std::optional<ControlRequest> read_request(const std::string& line);
std::string request_line(const ControlRequest& request);  // without its end

struct ControlAnswer {
  int status = 0;  // an exit status (core/error.h); 0: it was done
  std::string text;
};

// The run's side; nothing here waits longer than a moment for the other.
class ControlSocket {
 public:
  // In the folder of the run, which has to be locked: a socket that a killed run left is replaced. Throws
  // lh::Error(Code::resource).
  explicit ControlSocket(const std::filesystem::path& run_folder);
  ~ControlSocket();  // who is still waiting is told that the run has ended
  ControlSocket(const ControlSocket&) = delete;
  ControlSocket& operator=(const ControlSocket&) = delete;

  bool waiting();                            // is there somebody with a request?
  std::optional<ControlRequest> next();      // who asked has to be answered before the next one
  void answer(const ControlAnswer& answer);  // whoever went away is not missed

 private:
  struct Sockets;
  std::unique_ptr<Sockets> sockets_;
};

// Asks the run of that folder and waits for its answer. Throws lh::Error(Code::resource) where no run is live.
ControlAnswer ask_run(const std::filesystem::path& run_folder, const ControlRequest& request);

}  // namespace lh
