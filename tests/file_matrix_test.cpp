// Every file that the host writes and may find again, exchanged, retyped, renamed, cut and flipped: it is refused,
// passed over or made again, and the bits that are trained stay. (Bit by bit: record_test; kills: transaction_test.)
#include <gmock/gmock.h>

#include <array>
#include <functional>

#include "choice_lines.h"
#include "cuda/tuning.h"
#include "support/run_host.h"

namespace lh::test::file_matrix_test {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

void flip(const fs::path& file, size_t at) {
  std::string bytes = get(file);
  ASSERT_LT(at, bytes.size());
  bytes[at] = static_cast<char>(bytes[at] ^ 1);
  put(file, bytes);
}

void replace_first(const fs::path& file, const std::vector<std::pair<std::string, std::string>>& texts) {
  std::string bytes = get(file);
  for (const auto& [from, to] : texts)
    if (const size_t at = bytes.find(from); at != bytes.npos) {
      put(file, bytes.replace(at, from.size(), to));
      return;
    }
  ADD_FAILURE() << file << " has nothing to retype";
}

// A file, and another one of its kind whose content or name it may get.
struct Pair {
  fs::path file, other;
};

struct Way {
  const char* name;
  bool alone;  // the other file is not needed
  std::function<void(const Pair&)> change;
};

const std::array<Way, 5>& ways() {
  static const std::array<Way, 5> all{{
      {"exchanged", false,
       [](const Pair& p) {
         const std::string mine = get(p.file);
         put(p.file, get(p.other));
         put(p.other, mine);
       }},
      {"retyped", true,
       [](const Pair& p) {
         replace_first(p.file, {{"\"F32\"", "\"I32\""},
                                {"\"BF16\"", "\"F16\" "},
                                {"\"step\":0", "\"step\":\"0\""},
                                {"steps: 6", "steps: [6]"},
                                {"1,", "one,"}});
       }},
      {"renamed", false, [](const Pair& p) { fs::rename(p.file, p.other); }},
      {"cut", true, [](const Pair& p) { fs::resize_file(p.file, fs::file_size(p.file) / 2); }},
      {"flipped", true, [](const Pair& p) { flip(p.file, fs::file_size(p.file) * 3 / 4); }},
  }};
  return all;
}

std::vector<fs::path> files_in(const fs::path& folder) {
  std::vector<fs::path> files;
  for (const auto& entry : fs::directory_iterator(folder)) files.push_back(entry.path());
  std::ranges::sort(files);
  return files;
}

struct Kind {
  const char* name;
  std::function<std::vector<Pair>(const ToyRun&)> find;
  bool keep_newest_state;  // else the run goes on from the state before it
  const char* said;        // where it is changed and the run goes on
  const char* refused;     // where it is changed and nothing is trained; null: never
};

// The run's own folder and its cache, as a whole run left them.
class Files : public testing::Test {
 protected:
  Files() {
    run_.set("steps", "6").replace("train:\n", "train:\n  phases:\n    - {until: 5, lr: 1e-3}\n    - {lr: 5e-4}\n");
    expect_trained(run_.train());
    fs::copy(run_.folder() / "runs", whole_ / "runs", fs::copy_options::recursive);
    lora_ = get(run_.lora());
  }

  // As left, but for the LoRA at its end; of the states, those before the last step too.
  void begin_again(bool keep_newest_state) {
    fs::remove_all(run_.folder() / "runs");
    fs::copy(whole_ / "runs", run_.folder() / "runs", fs::copy_options::recursive);
    fs::remove(run_.lora());
    if (!keep_newest_state) fs::remove(run_.output() / "state/000000006.safetensors");
  }

  ToyRun run_;
  TempDir whole_;
  std::string lora_;
};

TEST_F(Files, ChangedInEveryWayTrainTheSameBits) {
  const auto in_cache = [](const char* kind) {
    return [kind](const ToyRun& run) {
      // All of them, for a run does not use every entry that it may find.
      const auto files = files_in(run.folder() / "runs/cache" / kind);
      std::vector<Pair> pairs;
      for (size_t i = files.size() - 1; i > 0; --i) pairs.push_back({files[i - 1], files[i]});
      return pairs;
    };
  };
  const auto in_output = [](const char* file, const char* other) {
    return [file, other](const ToyRun& run) { return std::vector<Pair>{{run.output() / file, run.output() / other}}; };
  };
  const Kind kinds[] = {
      {"state", in_output("state/000000006.safetensors", "state/000000004.safetensors"), true, "checkpoint passed over",
       "There is no good state beside"},
      {"latents", in_cache("latents"), false, "cache entry is made again", nullptr},
      {"text", in_cache("text"), false, "cache entry is made again", nullptr},
      {"LoRA of a step", in_output("toy_000000004.safetensors", "toy_000000002.safetensors"), false, "", nullptr},
      {"configuration", in_output("config.yaml", "config.old"), false, "", nullptr},
      {"metrics", in_output("metrics.csv", "metrics.old"), false, "", nullptr},
      {"history", in_output("history.jsonl", "history.old"), false, "cannot be repeated", "history.jsonl:"},
  };
  for (const Kind& kind : kinds)
    for (const Way& way : ways()) {
      SCOPED_TRACE(std::string(kind.name) + " " + way.name);
      begin_again(kind.keep_newest_state);
      const std::vector<Pair> pairs = kind.find(run_);
      if (way.alone && pairs.size() > 1) way.change({pairs.front().other, pairs.front().other});
      for (const Pair& pair : pairs) {
        if (!fs::exists(pair.other)) put(pair.other, "another file\n");
        way.change(pair);
      }
      const HostResult result = run_.train({"--resume"});
      if (result.code == 0) {
        EXPECT_THAT(result.output, HasSubstr(kind.said));
        EXPECT_TRUE(get(run_.lora()) == lora_) << "other bits were trained\n" << result.output;
        continue;
      }
      ASSERT_NE(kind.refused, nullptr) << result.output;
      EXPECT_EQ(result.code, 3) << result.output;
      EXPECT_THAT(result.output, HasSubstr(kind.refused));
      EXPECT_FALSE(fs::exists(run_.lora()));
    }
}

// A LoRA that is trained on, or looked at, is one that was written.
TEST_F(Files, ChangedLoraIsNoStart) {
  ToyRun next;
  next.set("steps", "1").replace("network:\n", "network:\n  pretrained_lora_path: " + run_.lora().string() + "\n");
  for (const Way& way : ways()) {
    if (!way.alone) continue;
    SCOPED_TRACE(way.name);
    begin_again(true);
    put(run_.lora(), lora_);
    way.change({run_.lora(), run_.lora()});
    const HostResult result = next.train();
    EXPECT_EQ(result.code, 3) << result.output;
    EXPECT_THAT(result.output, HasSubstr(run_.lora().string()));
    EXPECT_FALSE(fs::exists(next.lora()));
  }
}

// The list of plugins that were tried only says which need not be tried again.
TEST_F(Files, ListOfTriedPluginsIsMadeAgain) {
  const TempDir cache;
  const HostOptions options{.environment = {{"XDG_CACHE_HOME", cache.path().string()}}};
  const fs::path list = cache / "lora-host/tried-plugins.txt";
  for (const char* content : {"", "x", "\xff\n\n", "0 0\n"}) {
    begin_again(false);
    put(list, content);
    expect_trained(run_host(run_.command({"--resume"}), options));
    EXPECT_TRUE(get(run_.lora()) == lora_);
    EXPECT_GT(get(list).size(), 64u) << "it was not written anew";
  }
}

// What was timed once decides bits: a line is believed whole or not at all.
TEST(Tuning, ChangedLinesAreTimedAgain) {
  using lk::cuda::Tuning;
  const TempDir dir;
  const fs::path file = dir / "tuning";
  const auto algorithm = [](unsigned char first) {
    std::array<unsigned char, lk::algorithm_bytes> bytes{};
    for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<unsigned char>(first + i);
    return bytes;
  };
  const auto found = [&](const char* product) -> int {
    std::array<unsigned char, lk::algorithm_bytes> bytes{};
    Tuning tuning(file.string(), "device\tlibrary");
    return tuning.find(product, bytes.data()) ? bytes[0] : -1;
  };
  {
    Tuning tuning(file.string(), "device\tlibrary");
    auto a = algorithm(7), b = algorithm(90);
    tuning.keep("a", a.data());
    tuning.keep("b", b.data());
  }
  ASSERT_EQ(found("a"), 7);
  ASSERT_EQ(found("b"), 90);
  const std::string whole = get(file);
  for (size_t at = 0; at < whole.size(); ++at) {
    put(file, whole);
    flip(file, at);
    EXPECT_TRUE(found("a") == 7 || found("a") == -1) << at;
    EXPECT_TRUE(found("b") == 90 || found("b") == -1) << at;
    put(file, whole.substr(0, at));
    EXPECT_TRUE(found("a") == 7 || found("a") == -1) << "cut at " << at;
    EXPECT_TRUE(found("b") == 90 || found("b") == -1) << "cut at " << at;
  }
  // The algorithm of one product under the name of the other.
  std::string exchanged = whole;
  const size_t a = exchanged.find("\ta\t"), b = exchanged.find("\tb\t");
  std::swap(exchanged[a + 1], exchanged[b + 1]);
  put(file, exchanged);
  EXPECT_EQ(found("a"), -1);
  EXPECT_EQ(found("b"), -1);
}

// Several runs that are started together find algorithms at the same time, for one file.
TEST(Tuning, ProcessesLoseNothingOfEachOther) {
  using lk::cuda::Tuning;
  constexpr int processes = 4, products = 60;
  const TempDir dir;
  const auto name = [](int process, int product) { return fmt::format("{}x{}", process, product); };
  std::vector<pid_t> children;
  for (int process = 0; process < processes; ++process) {
    children.push_back(::fork());
    if (children.back() != 0) continue;
    Tuning tuning((dir / "tuning").string(), "device\tlibrary");
    std::array<unsigned char, lk::algorithm_bytes> bytes{};
    for (int product = 0; product < products; ++product) tuning.keep(name(process, product), bytes.data());
    ::_exit(0);
  }
  for (const pid_t child : children) {
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
  }
  Tuning tuning((dir / "tuning").string(), "device\tlibrary");
  std::array<unsigned char, lk::algorithm_bytes> bytes{};
  for (int process = 0; process < processes; ++process)
    for (int product = 0; product < products; ++product)
      EXPECT_TRUE(tuning.find(name(process, product), bytes.data())) << name(process, product);
}

// What one process used goes before another one's file, and into what that one says it used; as a whole or not at all.
TEST(Tuning, UsedLinesAreTakenByAnotherProcess) {
  using lk::cuda::Tuning;
  using Algorithm = std::array<unsigned char, lk::algorithm_bytes>;
  const TempDir dir;
  const auto of = [](unsigned char value) {
    Algorithm bytes{};
    bytes.fill(value);
    return bytes;
  };
  Tuning first((dir / "first").string(), "device\tlibrary"), second((dir / "second").string(), "device\tlibrary");
  for (unsigned char product = 1; product <= 3; ++product) {
    Algorithm fast = of(product), other = of(static_cast<unsigned char>(product + 100));
    first.keep(std::to_string(product), fast.data());
    second.keep(std::to_string(product), other.data());
  }
  EXPECT_EQ(first.used(), "");
  first.use("1", of(1).data());
  first.use("2", of(2).data());
  const std::string lines = first.used();
  for (size_t at = 0; at < lines.size(); ++at) {
    std::string damaged = lines;
    damaged[at] = static_cast<char>(damaged[at] ^ 1);
    EXPECT_FALSE(second.take(damaged)) << at;
  }
  EXPECT_FALSE(second.take(lines.substr(0, lines.size() - 2)));
  EXPECT_EQ(second.used(), "");
  ASSERT_TRUE(second.take(lines));
  EXPECT_EQ(second.used(), lines);
  for (unsigned char product = 1; product <= 3; ++product) {
    Algorithm found{};
    ASSERT_TRUE(second.find(std::to_string(product), found.data()));
    EXPECT_EQ(found[0], product < 3 ? product : product + 100);
  }
  Tuning elsewhere((dir / "first").string(), "another device\tlibrary");
  EXPECT_TRUE(elsewhere.take(lines));
  EXPECT_EQ(elsewhere.used(), "");
}

}  // namespace
}  // namespace lh::test::file_matrix_test
