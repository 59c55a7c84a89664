// Weight streaming: blocks whose weights stay in host memory change where memory is, and no bit of a result.
#include "passes/stream.h"

#include <gmock/gmock.h>
#include <signal.h>

#include <algorithm>
#include <limits>
#include <map>
#include <regex>

#include "encode/text_encoding.h"
#include "ops/ops.h"
#include "run/fit_forward.h"
#include "run/predict.h"
#include "run/weights.h"
#include "support/device.h"
#include "support/model_files.h"
#include "support/paths.h"
#include "support/run_host.h"
#include "support/toy_step.h"

namespace lh::test::stream_test {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

Model toy(const std::string& dtype = "auto") {
  ModelConfig config;
  config.name_or_path = toy_folder() / "flux_toy.safetensors";
  config.dtype = dtype;
  return Model(built_plugins(), config, "flux");
}

int64_t block_count(const Model& model) { return static_cast<int64_t>(toy_blocks(model).size()); }

TEST(Stream, ChangesNoBitOfAStep) {
  for (const char* dtype : {"auto", "float8_e4m3", "nf4"}) {
    const Model model = toy(dtype);
    const int64_t blocks = block_count(model);
    ASSERT_GE(blocks, 2);
    for (const double share : {0.0, 0.5, 1.0}) {
      const Ran want = run_step(model, {share});
      for (const int64_t streamed : {int64_t{1}, blocks / 2, blocks}) {
        SCOPED_TRACE(testing::Message() << dtype << ", " << share << " recomputed, " << streamed << " streamed");
        const Ran got = run_step(model, {share}, streamed);
        EXPECT_EQ(got.loss, want.loss);
        for (const auto& [name, g] : want.gradients) EXPECT_EQ(got.gradients.at(name).data, g.data) << name;
      }
    }
  }
}

// Each block comes once for each pass, ahead of its first reader, and never more at a time than the window holds.
TEST(Stream, FetchesOncePerPassAheadOfUseWithinTheWindow) {
  const Model model = toy();
  for (const double share : {0.0, 1.0}) {
    const Streaming streaming = spread(toy_blocks(model), block_count(model));
    const Graph graph = toy_graph(model, {share}, block_count(model)).graph;
    std::map<Value, std::vector<size_t>> fetches;     // by parameter
    std::map<Value, std::pair<size_t, size_t>> life;  // of a copy: from its fetch to its last reader
    size_t early = 0;
    for (size_t n = 0; n < graph.nodes.size(); ++n) {
      const Node& node = graph.nodes[n];
      if (node.op == &fetch_op) {
        fetches[node.inputs[0]].push_back(n);
        life[node.outputs[0]] = {n, n};
        continue;
      }
      for (const Value in : node.inputs) {
        EXPECT_FALSE(in && graph.info(in).kind == ValueKind::param && streaming.weights.contains(graph.info(in).name))
            << graph.describe(node) << " reads host memory";
        if (const auto copy = life.find(in); copy != life.end()) {
          early += copy->second.first == copy->second.second && n > copy->second.first + 1;
          copy->second.second = n;
        }
      }
    }
    EXPECT_EQ(fetches.size(), streaming.weights.size());
    for (const auto& [parameter, at] : fetches) EXPECT_LE(at.size(), 2u) << graph.info(parameter).name;
    EXPECT_GT(2 * early, life.size()) << "most copies have operations to travel beside";
    for (size_t n = 0; n < graph.nodes.size(); ++n) {
      int64_t held = 0;
      for (const auto& [copy, nodes] : life)
        if (nodes.first <= n && n <= nodes.second) held += graph.desc(copy).bytes();
      ASSERT_LE(held, streaming.window) << "at node " << n;
    }
  }
}

TEST(Stream, SpreadsBlocksEvenly) {
  std::vector<StreamableBlock> blocks;
  for (int i = 0; i < 12; ++i)
    blocks.push_back({.path = "b", .weights = {{std::to_string(i), 100 + i}}, .bytes = 100 + i});
  const auto chosen = [&](int64_t count) { return spread(blocks, count).weights; };
  EXPECT_THAT(chosen(0), testing::IsEmpty());
  EXPECT_THAT(chosen(3), testing::UnorderedElementsAre("2", "6", "10"));
  EXPECT_EQ(chosen(12).size(), 12u);
  EXPECT_EQ(chosen(99).size(), 12u);
  EXPECT_EQ(spread(blocks, 3).window, 2 * 110);
}

// Two processes that deal the weights out have half of them each, fetch and offer in one order, and make room for what
// the other has alone.
TEST(Stream, WeightsThatAreDealtOutAreReadWhereTheyLie) {
  for (const char* dtype : {"auto", "nf4"}) {
    const Model model = toy(dtype);
    const std::vector<StreamableBlock> blocks = toy_blocks(model);
    Streaming streaming = spread(blocks, block_count(model));
    const Graph all = toy_graph(model, {0.5}, streaming).graph;
    int64_t largest = 0, total = 0;
    std::map<std::string, int64_t> bytes;
    for (const StreamableBlock& block : blocks)
      for (const StreamableWeight& weight : block.weights) {
        largest = std::max(largest, weight.bytes);
        total += bytes[weight.name] = weight.bytes;
      }
    std::set<std::string> had;
    std::vector<std::vector<std::string>> orders;
    for (const int rank : {0, 1}) {
      SCOPED_TRACE(testing::Message() << dtype << ", rank " << rank);
      streaming.own = dealt(blocks, rank);
      int64_t own = 0;
      for (const std::string& name : streaming.own) {
        own += bytes.at(name);
        EXPECT_TRUE(had.insert(name).second) << name << " belongs to both";
      }
      EXPECT_LE(std::abs(2 * own - total), largest);
      const Graph graph = toy_graph(model, {0.5}, streaming).graph;
      orders.emplace_back();
      for (const Node& node : graph.nodes) {
        const bool offered = node.op == &offer_op;
        if (!offered && node.op != &fetch_op) continue;
        orders.back().push_back(graph.info(node.inputs[0]).name);
        EXPECT_EQ(offered, offered_parameters(graph).contains(node.inputs[0])) << orders.back().back();
      }
      EXPECT_EQ(graph.nodes.size(), all.nodes.size());
      const auto arena = [](const Graph& g) { return plan_memory(g, external_to_step(g)).bytes; };
      EXPECT_LT(arena(graph), arena(all));
      const auto names = weight_names(graph, model.checkpoint());
      EXPECT_EQ(streamed_bytes(graph, names) + weight_bytes(graph, names),
                streamed_bytes(all, names) + weight_bytes(all, names));
      EXPECT_EQ(kept_bytes(graph, names, {.rank = rank, .size = 2}), 0);
    }
    EXPECT_EQ(had, streaming.weights);
    EXPECT_EQ(orders[0], orders[1]);
  }
}

// A link that is fast enough costs nothing; one that is not decides how long the step takes.
TEST(Stream, PredictedTimeIsThatOfTheLinkWhereItIsSlow) {
  const Model model = toy();
  const Graph graph = toy_graph(model, {1}, block_count(model)).graph, plain = toy_graph(model, {1}).graph;
  const auto seconds = [](const Graph& g, double link) {
    Plan plan = plan_memory(g, external_to_step(g), PieceLayout::in_lines);
    plan.side_by_side.clear();  // of which copies are borders
    return predict(g, plan, {.products = 1e9, .memory = 1e9, .link = link});
  };
  const double alone = seconds(plain, 1).seconds;
  const double beside = seconds(graph, 1e15).seconds;  // copies take no time, but operations begin later beside them
  EXPECT_GT(beside, alone);
  EXPECT_LT(beside, alone + 2e-6 * static_cast<double>(graph.nodes.size()));
  const PredictedTime slow = seconds(graph, 1e3);
  EXPECT_GE(slow.seconds, slow.sending);
  EXPECT_LE(slow.seconds, slow.sending + beside);
  EXPECT_GT(slow.waiting, slow.seconds / 2);
}

struct StreamingRun : ToyRun {
  explicit StreamingRun(const std::string& memory) { config() += "memory: " + memory + "\n"; }
};

std::vector<std::string> images_of(const ToyRun& run) {
  std::vector<std::string> images;
  for (const fs::path& path : [&] {
         std::vector<fs::path> all;
         for (const auto& file : fs::recursive_directory_iterator(run.output() / "samples")) all.push_back(file);
         std::ranges::sort(all);
         return all;
       }())
    if (path.extension() == ".png") images.push_back(get(path));
  return images;
}

// The file, and the images that are made between steps.
TEST(StreamedRun, TrainsTheSameLoraAndMakesTheSameImages) {
  for (const char* dtype : {"auto", "float8_e4m3", "nf4"}) {
    SCOPED_TRACE(dtype);
    const auto train = [&](const std::string& memory) {
      StreamingRun run(memory);
      run.replace("model:\n", fmt::format("model:\n  dtype: {}\n", dtype));
      run.set("prompts", "[a photo]").set("sample_every", "3");
      expect_trained(run.train());
      return std::pair(get(run.lora()), images_of(run));
    };
    const auto plain = train("{stream: 0}"), streamed = train("{stream: 100%}"), some = train("{stream: 1}");
    EXPECT_GE(plain.second.size(), 2u);
    EXPECT_EQ(plain.first, streamed.first);
    EXPECT_EQ(plain.second, streamed.second);
    EXPECT_EQ(plain.first, some.first);
  }
}

// In the space between what they take whole and the least that they can take.
TEST(StreamedText, EncodersThatDoNotFitGiveTheSameConditioning) {
  const fs::path folder = toy_folder();
  ModelConfig config;
  config.name_or_path = folder / "flux_toy.safetensors";
  config.given["clip_path"] = {.text = (folder / "clip_l.safetensors").string()};
  config.given["t5_path"] = {.text = (folder / "t5xxl.safetensors").string()};
  const Model model(built_plugins(), config, "flux");
  Device device(tested_device());
  TextEncoding whole(device, model, DType::f32, {});
  const Graph graph = whole.conditioner(DType::f32);
  const int64_t most = fit_forward(device, graph, model.checkpoint(), std::numeric_limits<int64_t>::max()).bytes;
  const ForwardFit least = fit_forward(device, graph, model.checkpoint(), 1);
  EXPECT_GT(least.streamed_blocks, 0);
  ASSERT_LT(least.bytes, most);
  const std::string prompt = "a photo of a lighthouse";
  whole.prepare({prompt});
  const int64_t room = (most + least.bytes) / 2;
  TextEncoding small(device, model, DType::f32, {}, room);
  small.require_memory({prompt});
  small.prepare({prompt});
  const TensorCache::Entry want = whole.at(prompt), got = small.at(prompt);
  ASSERT_FALSE(want->empty());
  for (const auto& [name, tensor] : *want) EXPECT_EQ(got->at(name).data, tensor.data) << name;
  TextEncoding none(device, model, DType::f32, {}, least.bytes - 1);
  EXPECT_THAT(error_of([&] { none.require_memory({prompt}); }), HasSubstr("the text encoders do not fit: "));
}

TEST(StreamedRun, AKillChangesNothing) {
  StreamingRun undisturbed("{stream: 100%}");
  expect_trained(undisturbed.train());
  for (const int64_t steps : {1, 3, 4}) {
    StreamingRun run("{stream: 100%}");
    run.set("save_every", "1");
    {
      HostProcess process(run.command());
      reaches(process, run, steps);
      process.send(SIGKILL);
      process.wait();
    }
    expect_trained(run.train({"--resume"}));
    EXPECT_EQ(get(run.lora()), get(undisturbed.lora())) << "killed after step " << steps;
  }
}

// A run may go on with more or fewer streamed blocks: they are no part of what it is.
TEST(StreamedRun, GoesOnWithOtherBlocksStreamed) {
  StreamingRun undisturbed("{stream: 0}");
  expect_trained(undisturbed.train());
  StreamingRun run("{stream: 100%}");
  run.set("save_every", "2");
  {
    HostProcess process(run.command());
    reaches(process, run, 3);
    process.send(SIGTERM);
    process.wait();
  }
  run.replace("{stream: 100%}", "{stream: 0}");
  expect_trained(run.train({"--resume"}));
  EXPECT_EQ(get(run.lora()), get(undisturbed.lora()));
}

double planned(const std::string& output) {
  std::smatch match;
  EXPECT_TRUE(std::regex_search(output, match, std::regex(R"(memory +([\d.]+) MiB)"))) << output;
  return match.empty() ? 0 : std::stod(match[1]);
}

std::string budget_of(double mib) { return fmt::format("{{budget: {:.2f} MiB}}", mib); }

// From what the run takes without a budget down to the least: each budget is kept, and gives the same file.
TEST(Budget, IsKeptAndChangesNoBit) {  // with all tokens, so that making again is worth it
  ToyRun free;
  free.set("prompts", "[a photo]").set("sample_every", "3").set("max_sequence_length", "256");
  const double most = planned(expect_trained(free.train({"--dry-run"})).output);
  expect_trained(free.train());
  const auto alike = [&](StreamingRun& run) {  // and with the text encoded, for which encoders need more memory
    run.set("prompts", "[a photo]").set("sample_every", "3").set("max_sequence_length", "256");
    fs::copy(free.folder() / "runs" / "cache", run.folder() / "runs" / "cache",
             fs::copy_options::recursive | fs::copy_options::skip_existing);
  };
  const HostResult refused = [&] {
    StreamingRun run(budget_of(0.5));
    alike(run);
    return run.train();
  }();
  EXPECT_EQ(refused.code, 4);
  std::smatch match;
  ASSERT_TRUE(std::regex_search(refused.output, match, std::regex(R"(it takes ([\d.]+) MiB at least)")))
      << refused.output;
  const double least = std::stod(match[1]);
  EXPECT_LT(least, most);
  bool streamed = false;
  for (const double budget : {most + 0.06, (most + least) / 2, least + 0.06}) {
    SCOPED_TRACE(budget);
    StreamingRun run(budget_of(budget));
    alike(run);
    const HostResult plan = run.train({"--dry-run"});
    ASSERT_EQ(plan.code, 0) << plan.output;
    EXPECT_LE(planned(plan.output), budget + 0.05);
    streamed |= plan.output.find("of weights in host memory") != std::string::npos;
    expect_trained(run.train());  // under a device that refuses to go over it
    EXPECT_EQ(get(run.lora()), get(free.lora()));
  }
  EXPECT_TRUE(streamed) << "the least budget needs weights in host memory";
  // With little host memory more is made again, and what is refused is said.
  StreamingRun poor(fmt::format("{{budget: {:.2f} MiB, host: 1 MiB}}", (most + least) / 2));
  alike(poor);
  const std::string plan = expect_trained(poor.train({"--dry-run"})).output;
  double on_host = 0;
  const std::regex host_line(R"(([\d.]+) MiB of (weights|activations) in host memory)");
  for (std::sregex_iterator line(plan.begin(), plan.end(), host_line), end; line != end; ++line)
    on_host += std::stod((*line)[1]);
  EXPECT_LE(on_host, 1.05) << plan;
  StreamingRun below(budget_of(0.99 * least));
  alike(below);
  const HostResult result = below.train();
  EXPECT_EQ(result.code, 4);
  EXPECT_THAT(result.output, HasSubstr("What would give most:\n"));
  EXPECT_THAT(result.output, HasSubstr("model.dtype: float8_e4m3: "));
  EXPECT_FALSE(fs::exists(below.output() / "metrics.csv"));
}

TEST(Budget, TheDeviceNamesWhatWouldGoOverIt) {
  Device device(tested_device());
  const DeviceMemory some(device, 1 << 20, "some");
  device.limit_memory(3 << 20);
  const DeviceMemory more(device, 2 << 20, "more");
  EXPECT_THAT(error_of([&] { const DeviceMemory last(device, 1, "the last byte"); }),
              HasSubstr("no memory for the last byte (0.0 MiB): 3.0 MiB of the 3.0 MiB that may be used are taken "
                        "(memory.budget)"));
  device.limit_memory(0);
  const DeviceMemory again(device, 1, "the last byte");
}

}  // namespace
}  // namespace lh::test::stream_test
