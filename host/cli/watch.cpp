// lora-host watch: a page about a run, for this machine's browser alone.
#include <fmt/core.h>
#include <httplib.h>
#include <sys/socket.h>

#include <nlohmann/json.hpp>

#include "cli/commands.h"
#include "cli/run_view.h"
#include "cli/watch_page.h"
#include "cli/watch_pictures.h"
#include "cli/watch_script.h"
#include "core/error.h"
#include "data/sample_file.h"
#include "io/file.h"

namespace lh {
namespace {

namespace fs = std::filesystem;

constexpr const char* loopback = "127.0.0.1";
constexpr int64_t most_image_bytes = 64 << 20;
constexpr size_t most_pictures = 60;  // of the dataset: they are made small before the page is there
// A connection has a thread to itself, also one that says nothing, as browsers open them ahead of use.
constexpr size_t most_connections = 64;
constexpr time_t most_seconds = 2;     // that a request may take to arrive, and a connection be idle
constexpr size_t most_request = 4096;  // nothing is sent here

// Another site's page in the same browser must not read this one under a name of its own.
bool is_own_name(const std::string& host) {
  const std::string name = host.substr(0, host.rfind(':'));
  return name == loopback || name == "localhost";
}

std::string text_of(const nlohmann::json& json) {
  return json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

const char* type_of(const std::string& extension) {
  if (extension == sample_extension(SampleKind::clip_with_sound)) return "video/mp4";
  return extension == sample_extension(SampleKind::clip) ? "image/webp" : "image/png";
}

void serve_pages(httplib::Server& server, const fs::path& run, const WatchPictures& pictures) {
  server.set_default_headers({{"Content-Security-Policy", watch_page::policy},
                              {"X-Content-Type-Options", "nosniff"},
                              {"Referrer-Policy", "no-referrer"},
                              {"Cache-Control", "no-store"}});
  server.set_pre_routing_handler([](const httplib::Request& request, httplib::Response& response) {
    if (is_own_name(request.get_header_value("Host"))) return httplib::Server::HandlerResponse::Unhandled;
    response.status = 403;
    response.set_content("this page is for localhost\n", "text/plain");
    return httplib::Server::HandlerResponse::Handled;
  });
  const auto text = [&](const char* path, const char* content, const char* type) {
    server.Get(path, [content, type](const httplib::Request&, httplib::Response& r) { r.set_content(content, type); });
  };
  text("/", watch_page::html, "text/html; charset=utf-8");
  text("/page.css", watch_page::css, "text/css");
  text("/page.js", watch_page::js, "text/javascript");
  server.Get("/run.json", [run](const httplib::Request&, httplib::Response& response) {
    response.set_content(text_of(run_view(run)), "application/json");
  });
  server.Get("/dataset.json", [&pictures](const httplib::Request&, httplib::Response& response) {
    response.set_content(text_of(pictures_view(pictures)), "application/json");
  });
  server.Get(R"(/dataset/([0-9]{1,6})\.jpg)",
             [&pictures](const httplib::Request& request, httplib::Response& response) {
               const size_t index = std::stoul(request.matches[1]);
               if (index < pictures.first.size() && !pictures.first[index].thumbnail.empty())
                 response.set_content(pictures.first[index].thumbnail, "image/jpeg");
               else
                 response.status = 404;
             });
  server.Get(R"(/samples/([^/]+))", [run](const httplib::Request& request, httplib::Response& response) {
    const std::optional<fs::path> file = sample_file(run, request.matches[1]);
    std::error_code none;
    if (!file || !fs::is_regular_file(*file, none)) {
      response.status = 404;
      return;
    }
    response.set_content(read_text(*file, most_image_bytes), type_of(file->extension().string()));
  });
}

}  // namespace

int run_watch(const Options& options) {
  const fs::path run = options.input.empty() ? newest_run("output") : options.input;
  std::error_code none;
  if (!fs::is_directory(run, none)) fail(Code::config, "watch: there is no folder {}", run.string());
  const WatchPictures pictures = watch_pictures(run, most_pictures);
  httplib::Server server;
  // The library's own options would let two programs share a port.
  server.set_socket_options([](socket_t socket) {
    const int on = 1;
    ::setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  });
  server.new_task_queue = [] { return new httplib::ThreadPool(most_connections); };
  server.set_read_timeout(most_seconds);
  server.set_keep_alive_timeout(most_seconds);
  server.set_payload_max_length(most_request);
  serve_pages(server, fs::canonical(run), pictures);
  const int port = static_cast<int>(options.port);
  const bool any = port == 0, bound = !any && server.bind_to_port(loopback, port);
  const int taken = any ? server.bind_to_any_port(loopback) : bound ? port : -1;
  if (taken < 0)
    fail(Code::resource, "watch: port {} of {} cannot be used. Give another: --port, 0 for any that is free", port,
         loopback);
  fmt::print("{}: http://{}:{}/ (Ctrl-C ends it; the run goes on)\n", run.string(), loopback, taken);
  std::fflush(stdout);
  server.listen_after_bind();
  return 0;
}

}  // namespace lh
