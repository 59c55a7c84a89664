// A line of JSON each way over a Unix socket.
#include "io/control.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <boost/asio.hpp>
#include <chrono>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "core/json_text.h"

namespace lh {
namespace {

namespace asio = boost::asio;
using Local = asio::local::stream_protocol;
using boost::system::error_code;

constexpr const char* socket_name = "ctl.sock";
constexpr size_t longest_line = 64 << 10;
constexpr auto patience = std::chrono::seconds(1);

// The address of a socket may have 107 characters; one that is relative to an open folder is always short enough.
class Folder {
 public:
  explicit Folder(const std::filesystem::path& path)
      : fd_(::open(path.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC)),
        socket_(fmt::format("/proc/self/fd/{}/{}", fd_, socket_name)) {}
  ~Folder() { ::close(fd_); }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  bool there() const { return fd_ >= 0; }
  const std::string& socket() const { return socket_; }
  void remove_socket() const { ::unlinkat(fd_, socket_name, 0); }

 private:
  int fd_;
  std::string socket_;
};

bool is_owner(Local::socket& peer) {
  ucred who{};
  socklen_t size = sizeof who;
  return ::getsockopt(peer.native_handle(), SOL_SOCKET, SO_PEERCRED, &who, &size) == 0 &&
         (who.uid == ::geteuid() || who.uid == 0);
}

}  // namespace

std::optional<ControlRequest> read_request(const std::string& line) {
  const auto json = json_or_nothing(line);
  if (json.is_object() && json.contains("command") && json["command"].is_string()) try {
      return ControlRequest{json["command"], json.value("arguments", std::vector<std::string>())};
    } catch (const nlohmann::json::exception&) {  // arguments that are no texts
    }
  return std::nullopt;
}

std::string request_line(const ControlRequest& request) {
  return nlohmann::json{{"command", request.command}, {"arguments", request.arguments}}.dump();
}

struct ControlSocket::Sockets {
  explicit Sockets(const std::filesystem::path& path) : folder(path), acceptor(context) {}

  // Runs what was started until it is done, or patience ends.
  void run() {
    context.restart();
    context.run_for(patience);
    error_code none;
    if (!context.stopped()) {
      peer.cancel(none);
      context.run();
    }
  }

  asio::io_context context;
  Folder folder;
  Local::acceptor acceptor;
  Local::socket peer{context};
};

ControlSocket::ControlSocket(const std::filesystem::path& run_folder)
    : sockets_(std::make_unique<Sockets>(run_folder)) {
  error_code error;
  sockets_->folder.remove_socket();
  Local::acceptor& acceptor = sockets_->acceptor;
  acceptor.open(Local(), error);
  const mode_t before = ::umask(0177);
  if (!error) acceptor.bind(sockets_->folder.socket(), error);
  ::umask(before);
  if (!error) acceptor.listen(asio::socket_base::max_listen_connections, error);
  if (!error) acceptor.non_blocking(true, error);
  if (error)
    fail(Code::resource, "{}: no socket can be made there: {}", (run_folder / socket_name).string(), error.message());
}

ControlSocket::~ControlSocket() {
  try {
    while (waiting()) {
      (void)next();
      answer({static_cast<int>(Code::resource), "the run has ended"});
    }
  } catch (const std::exception&) {  // nobody is left to be told
  }
  sockets_->folder.remove_socket();
}

bool ControlSocket::waiting() {
  Local::socket& peer = sockets_->peer;
  error_code error;
  while (!peer.is_open()) {
    sockets_->acceptor.accept(peer, error);
    if (error) return false;
    if (!is_owner(peer)) peer.close(error);
  }
  return true;
}

std::optional<ControlRequest> ControlSocket::next() {
  if (!waiting()) return std::nullopt;
  std::string line;
  error_code failed = asio::error::timed_out;
  asio::async_read_until(sockets_->peer, asio::dynamic_buffer(line, longest_line), '\n',
                         [&](const error_code& error, size_t) { failed = error; });
  sockets_->run();
  if (auto request = failed ? std::nullopt : read_request(line)) return request;
  answer({static_cast<int>(Code::config), "expected one line of JSON with a command and its arguments"});
  return std::nullopt;
}

void ControlSocket::answer(const ControlAnswer& answer) {
  const std::string line = nlohmann::json{{"status", answer.status}, {"text", answer.text}}.dump(
                               -1, ' ', false, nlohmann::json::error_handler_t::replace) +
                           "\n";
  asio::async_write(sockets_->peer, asio::buffer(line), [](const error_code&, size_t) {});
  sockets_->run();
  error_code none;
  sockets_->peer.close(none);
}

ControlAnswer ask_run(const std::filesystem::path& run_folder, const ControlRequest& request) {
  const Folder folder(run_folder);
  if (!folder.there()) fail(Code::resource, "{}: expected the folder of a run, found no folder", run_folder.string());
  asio::io_context context;
  Local::socket run(context);
  error_code error;
  run.connect(folder.socket(), error);
  if (error == asio::error::access_denied)
    fail(Code::resource, "{}: belongs to another user", (run_folder / socket_name).string());
  if (error)
    fail(Code::resource,
         "{}: no run is live there ({}). A run can be spoken to from its first step on, while it trains",
         run_folder.string(), error.message());
  const std::string line = request_line(request) + "\n";
  asio::write(run, asio::buffer(line), error);
  std::string answer;
  if (!error) asio::read_until(run, asio::dynamic_buffer(answer, 16 * longest_line), '\n', error);
  const auto json = json_or_nothing(answer);
  if (error || !json.is_object())
    fail(Code::resource, "{}: the run ended before it answered. What it has done is in its history.jsonl",
         run_folder.string());
  return {json.value("status", static_cast<int>(Code::internal)), json.value("text", "")};
}

}  // namespace lh
