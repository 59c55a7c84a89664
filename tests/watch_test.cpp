// lora-host watch: what it reads of a run's folder, and that it shows it to this machine alone.
#include <gmock/gmock.h>
#include <httplib.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <nlohmann/json.hpp>

#include "cli/run_view.h"
#include "cli/watch_page.h"
#include "cli/watch_pictures.h"
#include "support/image_files.h"
#include "support/run_host.h"

namespace lh::test::watch_test {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using testing::AllOf;
using testing::HasSubstr;

// A folder as a run leaves it.
class Watch : public testing::Test {
 protected:
  Watch() {
    put(run() / "metrics.csv", "step,loss,lr,grad_norm,validation_loss\n1,0.5,0.001,2,\n2,0.25,0.001,1,0.75\n3,0.1");
    put(run() / "config.yaml", "model: {name_or_path: m}\ntrain: {steps: 40}\nsample: {prompts: [a cat, \"<b>\"]}\n");
    fs::create_directory(run() / "samples");
    for (const char* name : {"000000010_1.png", "000000002_1.png", "000000002_0.png"})
      write_png(run() / "samples" / name, test_picture(8, 8));
    put(run() / "samples" / "notes.txt", "no sample");
    put(run() / "samples" / "000000002_0.png.tmp", "no sample");
  }
  fs::path root() const { return dir_.path(); }
  fs::path run() const { return dir_ / "dog"; }
  TempDir dir_;
};

TEST_F(Watch, ReadsWhatTheRunWrote) {
  const json view = run_view(run());
  EXPECT_EQ(view.at("name"), "dog");
  EXPECT_EQ(view.at("live"), false);
  EXPECT_EQ(view.at("step"), 2);  // the last line is not whole
  EXPECT_EQ(view.at("steps"), 40);
  EXPECT_EQ(view.at("columns"), json({"step", "loss", "lr", "grad_norm", "validation_loss"}));
  EXPECT_EQ(view.at("metrics"), json::parse("[[1, 0.5, 0.001, 2, null], [2, 0.25, 0.001, 1, 0.75]]"));
  EXPECT_EQ(view.at("prompts"), json({"a cat", "<b>"}));
  EXPECT_EQ(view.at("samples"), json::parse(R"([{"prompt": 0, "step": 2, "file": "000000002_0.png"},
                                                {"prompt": 1, "step": 2, "file": "000000002_1.png"},
                                                {"prompt": 1, "step": 10, "file": "000000010_1.png"}])"));
}

TEST_F(Watch, LongCurvesAreMeans) {
  std::string csv = "step,loss\n";
  for (int step = 1; step <= 2500; ++step) csv += fmt::format("{},{}\n", step, step % 3);
  put(run() / "metrics.csv", csv);
  const json view = run_view(run());
  EXPECT_EQ(view.at("metrics").size(), 834u);  // of three each
  EXPECT_EQ(view.at("metrics").at(0), json::parse("[3, 1.0]"));
  EXPECT_EQ(view.at("metrics").back().at(0), 2500);
}

TEST_F(Watch, WhatIsNotThereIsLeftOut) {
  const TempDir empty;
  const json view = run_view(empty.path());
  EXPECT_EQ(view.at("step"), 0);
  EXPECT_TRUE(view.at("metrics").empty());
  EXPECT_TRUE(view.contains("problem"));
  EXPECT_FALSE(view.contains("steps"));
}

TEST_F(Watch, TheNewestRunIsFound) {
  put(root() / "cat" / "metrics.csv", "step,loss\n");
  fs::last_write_time(run() / "metrics.csv", fs::file_time_type::clock::now() - std::chrono::hours(1));
  put(root() / "other" / "notes.txt", "");
  EXPECT_EQ(newest_run(root()), root() / "cat");
  EXPECT_THAT(error_of([&] { newest_run(root() / "other"); }), HasSubstr("lora-host watch RUN_DIR"));
}

TEST_F(Watch, OnlySamplesAreFiles) {
  for (const char* name :
       {"../config.yaml", "..", "notes.txt", "000000002_0.png.tmp", "000000002_0.png\n", "/etc/passwd", "1_0.png", ""})
    EXPECT_FALSE(sample_file(run(), name)) << name;
  EXPECT_EQ(sample_file(run(), "000000002_0.png"), run() / "samples" / "000000002_0.png");
}

TEST_F(Watch, PicturesOfTheDatasetAreMadeSmall) {
  put(run() / "config.yaml",
      fmt::format("model: {{name_or_path: m}}\ndatasets: [{{folder_path: {}}}]\n", (root() / "photos").string()));
  fs::create_directory(root() / "photos");
  for (const char* name : {"a.png", "c.png", "d.png"}) write_png(root() / "photos" / name, test_picture(400, 200));
  put(root() / "photos" / "b.png", "no image");
  put(root() / "photos" / "a.txt", "a dog\n");
  const WatchPictures pictures = watch_pictures(run(), 3);
  EXPECT_EQ(pictures.total, 4);
  EXPECT_EQ(pictures.problem, "");
  EXPECT_EQ(pictures_view(pictures).at("pictures"),
            json::parse(R"([{"name": "a.png", "caption": "a dog", "shown": true},
                            {"name": "b.png", "caption": "", "shown": false},
                            {"name": "c.png", "caption": "", "shown": true}])"));
  put(root() / "small.jpg", pictures.first[0].thumbnail);
  const Image small = decode_image(root() / "small.jpg");
  EXPECT_EQ(small.width, 160);
  EXPECT_EQ(small.height, 80);
  put(run() / "config.yaml", "datasets: [{folder_path: /nowhere}]\n");
  EXPECT_THAT(watch_pictures(run(), 3).problem, HasSubstr("there is no such folder"));
  fs::remove(run() / "config.yaml");
  EXPECT_THAT(watch_pictures(run(), 3).problem, HasSubstr("cannot be opened"));
}

// Once it says where it is to be seen; 0: it ended.
int port_of(HostProcess& process) {
  const std::string mark = "http://127.0.0.1:";
  for (int i = 0; i < 200 && process.output().find(mark) == std::string::npos && process.running(); ++i)
    ::usleep(50000);
  const std::string output = process.output();
  const size_t at = output.find(mark);
  return at == std::string::npos ? 0 : std::stoi(output.substr(at + mark.size()));
}

// Browsers open connections ahead of use, and other programs may be slow.
TEST_F(Watch, SilentConnectionsHoldNobodyUp) {
  HostProcess process({"watch", run().string(), "--port", "0"});
  const int port = port_of(process);
  ASSERT_GT(port, 0) << process.output();
  std::vector<int> silent(40);
  for (int& connection : silent) {
    connection = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const sockaddr_in address{
        .sin_family = AF_INET, .sin_port = htons(static_cast<uint16_t>(port)), .sin_addr = {htonl(INADDR_LOOPBACK)}};
    ASSERT_EQ(::connect(connection, reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
    ASSERT_EQ(::send(connection, "GET /", 5, 0), 5);
  }
  httplib::Client client("127.0.0.1", port);
  client.set_read_timeout(4);
  const auto page = client.Get("/run.json");
  ASSERT_TRUE(page);
  EXPECT_EQ(page->status, 200);
  for (const int connection : silent) ::close(connection);
  // What nobody asked for is not read.
  const auto sent = client.Post("/run.json", std::string(1 << 16, 'x'), "text/plain");
  ASSERT_TRUE(sent);
  EXPECT_EQ(sent->status, 413);
}

TEST_F(Watch, ServesThePage) {
  HostProcess process({"watch", run().string(), "--port", "0"});
  const int port = port_of(process);
  ASSERT_GT(port, 0) << process.output();
  httplib::Client client("127.0.0.1", port);
  const auto page = client.Get("/");
  ASSERT_TRUE(page);
  EXPECT_EQ(page->status, 200);
  EXPECT_EQ(page->get_header_value("Content-Security-Policy"), watch_page::policy);
  EXPECT_EQ(json::parse(client.Get("/run.json")->body).at("step"), 2);
  EXPECT_TRUE(json::parse(client.Get("/dataset.json")->body).at("pictures").empty());
  EXPECT_EQ(client.Get("/samples/000000002_0.png")->body, get(run() / "samples" / "000000002_0.png"));
  for (const char* path : {"/samples/notes.txt", "/samples/..%2Fconfig.yaml", "/samples/000000009_0.png",
                           "/config.yaml", "/dataset/0.jpg", "/dataset/999999.jpg", "/dataset/..%2Fa.jpg"})
    EXPECT_EQ(client.Get(path)->status, 404) << path;
  // A name of another site that leads here.
  EXPECT_EQ(client.Get("/run.json", {{"Host", "example.org"}})->status, 403);
  EXPECT_EQ(client.Get("/run.json", {{"Host", fmt::format("localhost:{}", port)}})->status, 200);
  EXPECT_THAT(run_host({"watch", run().string(), "--port", std::to_string(port)}).output, HasSubstr("cannot be used"));
  EXPECT_THAT(run_host({"watch", (root() / "nowhere").string()}).output, HasSubstr("there is no folder"));
}

}  // namespace
}  // namespace lh::test::watch_test
