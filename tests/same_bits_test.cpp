// A run gives the bits that it promises, or it is refused before the first step with what is wrong.
#include <gmock/gmock.h>

#include <functional>

#include "support/device.h"
#include "support/kernel_tensors.h"
#include "support/paths.h"
#include "support/run_host.h"

namespace lh::test::same_bits_test {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::ContainsRegex;
using testing::HasSubstr;

TEST(SameBits, OneProcessorTwoAndAll) {
  for (const char* type : {"fp32", "bf16"}) {
    SCOPED_TRACE(type);
    ToyRun one, two, all;
    for (ToyRun* run : {&one, &two, &all}) run->set("steps", "2").set("dropout", "0.1").set("dtype", type);
    expect_trained(run_host(one.command(), {.shell_prefix = "taskset -p 1 $$ > /dev/null"}));
    expect_trained(run_host(two.command(), {.shell_prefix = "taskset -p 3 $$ > /dev/null"}));
    expect_trained(all.train());
    EXPECT_TRUE(get(one.lora()) == get(all.lora()));
    EXPECT_TRUE(get(two.lora()) == get(all.lora()));
    // And what one began, two go on with.
    one.set("steps", "3");
    two.set("steps", "3");
    expect_trained(run_host(one.command({"--resume"}), {.shell_prefix = "taskset -p 3 $$ > /dev/null"}));
    expect_trained(run_host(two.command({"--resume"}), {.shell_prefix = "taskset -p 1 $$ > /dev/null"}));
    EXPECT_TRUE(get(one.lora()) == get(two.lora()));
  }
}

// The kernel of the matrix products decides bits: a run goes on with the one that it began with.
TEST(SameBits, AnotherKernelIsRefused) {
  if (tested_device() != "cpu") GTEST_SKIP() << "OpenBLAS multiplies on the CPU alone";
  ToyRun run;
  run.set("steps", "2");
  expect_trained(run_host(run.command(), {.environment = {{"OPENBLAS_CORETYPE", "Prescott"}}}));
  run.set("steps", "4");
  HostResult result = run_host(run.command({"--resume"}), {.environment = {{"OPENBLAS_CORETYPE", "Core2"}}});
  EXPECT_EQ(result.code, 2) << result.output;
  EXPECT_THAT(result.output, ContainsRegex("device: the saved run has OpenBLAS [^ ]+ Prescott.*, this one.* Core2"));
  expect_trained(run_host(run.command({"--resume"}), {.environment = {{"OPENBLAS_CORETYPE", "Prescott"}}}));
}

// Where oneDNN may not use instructions of bf16, as on a processor without them, OpenBLAS multiplies all.
TEST(SameBits, ProcessorsWithoutBf16AreOthers) {
  if (!lk_test::has_onednn()) GTEST_SKIP() << "no instructions of bf16 here, or no oneDNN";
  const HostOptions without{.environment = {{"ONEDNN_MAX_CPU_ISA", "AVX2"}}};
  ToyRun run;
  run.set("steps", "1").set("dtype", "bf16");
  expect_trained(run_host(run.command(), without));
  run.set("steps", "2");
  const HostResult result = run.train({"--resume"});
  EXPECT_EQ(result.code, 2) << result.output;
  EXPECT_THAT(result.output, ContainsRegex("device: the saved run has OpenBLAS [^,]+, this one.*, oneDNN [0-9.]+ "));
  expect_trained(run_host(run.command({"--resume"}), without));
}

// On a GPU the products of a step are chosen by time: a state goes on with its own choices where others would be made.
TEST(SameBits, ChosenProductsComeWithTheState) {
  if (tested_device() == "cpu") GTEST_SKIP() << "nothing is chosen by time on the CPU";
  ToyRun whole, moved;
  const TempDir caches;
  const auto with = [&](const char* cache) {
    return HostOptions{.environment = {{"XDG_CACHE_HOME", (caches / cache).string()}}};
  };
  for (ToyRun* run : {&whole, &moved}) run->set("dtype", "fp32").set("steps", "6");
  expect_trained(run_host(whole.command(), with("a")));
  moved.set("steps", "2");
  expect_trained(run_host(moved.command(), with("a")));
  moved.set("steps", "6");
  fs::remove_all(moved.folder() / "runs/cache");
  expect_trained(run_host(moved.command({"--resume"}), with("b")));
  EXPECT_TRUE(get(moved.lora()) == get(whole.lora()));
}

// Another VAE or text encoder is another training.
TEST(SameBits, AnotherComponentIsRefused) {
  ToyRun run;
  run.set("steps", "1");
  expect_trained(run.train());
  run.set("steps", "2");
  for (const auto& [key, file, name] :
       {std::tuple{"vae_path", "ae", "vae (model.vae_path)"}, std::tuple{"clip_path", "clip_l", "(model.clip_path)"}}) {
    const std::string before = run.config();
    const fs::path original = toy_folder() / (std::string(file) + ".safetensors");
    const fs::path other = run.folder() / "other.safetensors";
    std::string bytes = get(original);
    bytes[bytes.size() - 2] = static_cast<char>(bytes[bytes.size() - 2] ^ 1);
    put(other, bytes);
    run.set(key, other.string());
    const HostResult result = run.train({"--resume"});
    EXPECT_EQ(result.code, 2) << result.output;
    EXPECT_THAT(result.output, AllOf(HasSubstr(name), HasSubstr("the saved run has")));
    run.config() = before;
  }
  expect_trained(run.train({"--resume"}));
}

// Entries of the cache that were flipped, exchanged or replaced are made again, and change nothing.
TEST(SameBits, CachesAreNotBelieved) {
  ToyRun whole;
  whole.set("steps", "2");
  expect_trained(whole.train());
  const auto flip = [](const std::vector<fs::path>& files) {
    for (const fs::path& file : files) {
      std::string bytes = get(file);
      bytes[bytes.size() - 5] = static_cast<char>(bytes[bytes.size() - 5] ^ 0x20);
      put(file, bytes);
    }
  };
  const auto exchange = [](const std::vector<fs::path>& files) {
    fs::rename(files.front(), files.front().string() + ".first");
    for (size_t i = 1; i < files.size(); ++i) fs::rename(files[i], files[i - 1]);
    fs::rename(files.front().string() + ".first", files.back());
  };
  const auto replace = [](const std::vector<fs::path>& files) {
    for (const fs::path& file : files) {
      fs::remove(file);
      fs::create_directory(file);
    }
  };
  using Change = std::function<void(const std::vector<fs::path>&)>;
  for (const auto& [change, text] : {std::pair<Change, std::string>{flip, "does not match its checksum"},
                                     {exchange, "was renamed or exchanged"},
                                     {replace, "is a folder, expected a regular file"}}) {
    ToyRun run;
    run.set("steps", "2");
    for (const char* kind : {"latents", "text"}) {
      std::vector<fs::path> files;
      for (const auto& entry : fs::directory_iterator(run.folder() / "runs/cache" / kind))
        files.push_back(entry.path());
      ASSERT_GE(files.size(), 2u) << kind;
      change(files);
    }
    const HostResult result = run.train();
    expect_trained(result);
    EXPECT_THAT(result.output, AllOf(HasSubstr(text), HasSubstr("encoding 5 images"), HasSubstr("encoding 1 prompts")));
    EXPECT_TRUE(get(run.lora()) == get(whole.lora())) << text;
  }
}

// NaN and infinity are said at the save, and not published.
TEST(SameBits, NothingThatIsNotFiniteIsPublished) {
  ToyRun run;
  run.set("steps", "1")
      .set("save_every", "1")
      .replace("  optimizer: adamw\n", "  optimizer: adamw\n  optimizer_params: {eps: 0}\n");
  const HostResult result = run.train();
  EXPECT_EQ(result.code, 5) << result.output;
  EXPECT_THAT(result.output, AllOf(HasSubstr("step 1: NaN or infinity in"), HasSubstr("This was not saved")));
  EXPECT_TRUE(fs::is_empty(run.output() / "state"));
  EXPECT_FALSE(fs::exists(run.lora()));

  // alpha goes into one of the matrices of diffusers' format, which then ends above float16.
  ToyRun large;
  large.set("steps", "1").replace("save:\n", "save:\n  format: diffusers\n  dtype: fp16\n");
  large.replace("  linear: 2\n", "  linear: 2\n  linear_alpha: 1e9\n");
  const HostResult overflow = large.train();
  EXPECT_EQ(overflow.code, 5) << overflow.output;
  EXPECT_THAT(overflow.output, AllOf(HasSubstr("are a NaN or an infinity as float16"), HasSubstr("save.dtype: bf16")));
  EXPECT_FALSE(fs::exists(large.lora()));
  large.replace("  dtype: fp16\n", "  dtype: bf16\n");
  expect_trained(large.train({"--resume"}));
}

// What the first save would refuse is refused before anything is computed.
TEST(SameBits, SavesAreTriedFirst) {
  struct Row {
    std::vector<std::string> flags;
    std::string folder;  // that stands in a file's way, in the folder of runs
    int code;
    std::string error;
  };
  const std::string long_name(240, 'n');
  for (const Row& row : {Row{{"--name", long_name}, "", 2, "Use a shorter name"},
                         Row{{"--name", "run\xff"}, "", 2, "name: byte 3 (0xff) is not valid UTF-8"},
                         Row{{"--trigger", "\xc3("}, "", 2, "--trigger: byte 0 (0xc3)"},
                         Row{{}, "toy/toy.safetensors", 4, "a folder stands where the run writes a file"},
                         Row{{}, "toy/toy_000000002.safetensors", 4, "a folder stands where"},
                         Row{{}, "toy/metrics.csv", 4, "a folder stands where"},
                         Row{{}, "toy/samples/000000002_0.png", 4, "a folder stands where"},
                         Row{{"--alpha", "1e39"}, "", 2, "must be a number that float32 holds, found 1e39"}}) {
    ToyRun run;
    if (!row.folder.empty()) fs::create_directories(run.folder() / "runs" / row.folder);
    for (const bool dry : {true, false}) {
      std::vector<std::string> flags = row.flags;
      if (dry) flags.emplace_back("--dry-run");
      const HostResult result = run.train(flags);
      EXPECT_EQ(result.code, row.code) << result.output;
      EXPECT_THAT(result.output, HasSubstr(row.error));
      EXPECT_FALSE(fs::exists(run.output() / "config.yaml"));
    }
  }
  ToyRun decay;
  decay.replace("  optimizer: adamw\n", "  optimizer: adamw\n  optimizer_params: {weight_decay: 1e300}\n");
  const HostResult result = decay.train();
  EXPECT_EQ(result.code, 2) << result.output;
  EXPECT_THAT(result.output, HasSubstr("must be a number that float32 holds, found 1e300"));
  // A folder of images whose name is no text is no reason to stop.
  ToyRun bytes;
  const fs::path photos = bytes.folder() / "photos\xff";
  fs::copy(fs::path(source_dir()) / "examples/demo/photos", photos);
  bytes.set("steps", "1");
  expect_trained(bytes.train({"--dataset", photos.string()}));
}

}  // namespace
}  // namespace lh::test::same_bits_test
