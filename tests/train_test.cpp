// What a run is made of and resumes from: batch order, random numbers, cached tensors, saved states.
#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "core/random.h"
#include "data/batches.h"
#include "encode/tensor_cache.h"
#include "io/record.h"
#include "ops/ops.h"
#include "support/adapter_update.h"
#include "support/device.h"
#include "support/graph_run.h"
#include "support/io_files.h"
#include "support/log.h"
#include "support/model_files.h"
#include "train/fact_changes.h"
#include "train/state.h"

namespace lh::train_test {
namespace {

using namespace test;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// 10 samples in one bucket, of which the first comes twice an epoch, and 3 in another.
Dataset dataset(int64_t batch_size) {
  Dataset d;
  for (int i = 0; i < 13; ++i) {
    Sample s;
    s.bucket = i < 10 ? Bucket{512, 512} : Bucket{256, 768};
    s.repeats = i == 0 ? 2 : 1;
    s.batch_size = batch_size;
    d.samples.push_back(s);
  }
  return d;
}

std::vector<std::vector<int64_t>> epoch_of(BatchOrder& order, int64_t number) {
  std::vector<std::vector<int64_t>> batches;
  for (int64_t i = 0; i < order.batches_per_epoch(); ++i)
    batches.push_back(order.at(number * order.batches_per_epoch() + i).samples);
  return batches;
}

TEST(BatchOrder, EverySampleComesOnceAnEpoch) {
  for (const int64_t batch_size : {1, 2, 4, 11, 30}) {
    SCOPED_TRACE(batch_size);
    const Dataset d = dataset(batch_size);
    BatchOrder order(d, 7);
    const auto batches = [&](int64_t items) { return (items + batch_size - 1) / batch_size; };
    EXPECT_EQ(order.batches_per_epoch(), batches(11) + batches(3));
    for (const int64_t epoch : {0, 1, 5}) {
      std::map<int64_t, int64_t> seen;
      for (int64_t i = 0; i < order.batches_per_epoch(); ++i) {
        const Batch& batch = order.at(epoch * order.batches_per_epoch() + i);
        ASSERT_EQ(static_cast<int64_t>(batch.samples.size()), batch_size);
        for (const int64_t s : batch.samples) {
          EXPECT_EQ(d.samples.at(static_cast<size_t>(s)).kind(), batch.kind);
          ++seen[s];
        }
      }
      int64_t total = 0;
      for (size_t s = 0; s < d.samples.size(); ++s) {
        EXPECT_GE(seen[static_cast<int64_t>(s)], d.samples[s].repeats) << "sample " << s;
        total += seen[static_cast<int64_t>(s)];
      }
      EXPECT_EQ(total, order.batches_per_epoch() * batch_size);
      if (batch_size == 1) {
        EXPECT_EQ(total, 14) << "nothing is filled up";
      }
    }
  }
}

// Images of one size that have other batch sizes are never in one batch.
TEST(BatchOrder, BatchesAreOfOneKind) {
  Dataset d;
  for (const int64_t size : {4, 1, 4, 2, 4, 4, 4, 2, 1, 2}) d.samples.emplace_back().batch_size = size;
  BatchOrder order(d, 7);
  EXPECT_EQ(order.batches_per_epoch(), 2 + 2 + 2) << "5 in batches of 4, 3 of 2, 2 of 1";
  for (const int64_t epoch : {0, 1, 5}) {
    std::map<int64_t, std::set<int64_t>> seen;  // by batch size
    for (int64_t i = 0; i < order.batches_per_epoch(); ++i) {
      const Batch& batch = order.at(epoch * order.batches_per_epoch() + i);
      ASSERT_EQ(static_cast<int64_t>(batch.samples.size()), batch.kind.size);
      for (const int64_t s : batch.samples) {
        EXPECT_EQ(d.samples.at(static_cast<size_t>(s)).batch_size, batch.kind.size);
        seen[batch.kind.size].insert(s);
      }
    }
    EXPECT_THAT(seen[4], ElementsAre(0, 2, 4, 5, 6));
    EXPECT_THAT(seen[2], ElementsAre(3, 7, 9));
    EXPECT_THAT(seen[1], ElementsAre(1, 8));
  }
}

// The last batch of a bucket is filled up from the bucket's beginning.
TEST(BatchOrder, LastBatchWrapsAround) {
  Dataset d;
  d.samples.resize(5);
  for (Sample& sample : d.samples) sample.batch_size = 3;
  BatchOrder order(d, 1);
  auto batches = epoch_of(order, 0);
  ASSERT_EQ(batches.size(), 2u);
  std::ranges::sort(batches, [](const auto& a, const auto& b) {
    return std::set<int64_t>(a.begin(), a.end()).size() > std::set<int64_t>(b.begin(), b.end()).size();
  });
  std::set<int64_t> all;
  for (const auto& b : batches) all.insert(b.begin(), b.end());
  EXPECT_EQ(all.size(), 5u);
  // One of the two starts with what the other ends with.
  EXPECT_TRUE(batches[0].front() == batches[1].back() || batches[1].front() == batches[0].back());
}

TEST(BatchOrder, IsAFunctionOfSeedAndEpoch) {
  const Dataset d = dataset(2);
  BatchOrder one(d, 7), other(d, 7), seeded(d, 8);
  const auto second = epoch_of(one, 2), zeroth = epoch_of(one, 0);
  EXPECT_EQ(epoch_of(other, 0), zeroth) << "the order depends on what was asked before";
  EXPECT_EQ(epoch_of(other, 2), second);
  EXPECT_NE(zeroth, second);
  EXPECT_NE(epoch_of(seeded, 0), zeroth);
}

// Philox-4x32-10 of counter 0 and key 0, from the known answers of Random123.
TEST(Random, KnownAnswer) {
  Random random(0, static_cast<Purpose>(0), 0, 0);
  const auto joined = [](uint32_t a, uint32_t b) {
    return (static_cast<double>((uint64_t{a} >> 5) * 67108864 + (b >> 6)) + 0.5) / 9007199254740992.0;
  };
  EXPECT_EQ(random.uniform(), joined(0x6627e8d5, 0xe169c58d));
  EXPECT_EQ(random.uniform(), joined(0xbc57ac4c, 0x9b00dbd8));
}

TEST(Random, EveryPartOfTheKeyCounts) {
  std::set<double> seen;
  for (const uint64_t seed : {uint64_t{1}, uint64_t{1} << 40})
    for (const Purpose purpose : {Purpose::noise, Purpose::timestep})
      for (const uint64_t step : {uint64_t{0}, uint64_t{1}, uint64_t{1} << 33})
        for (const uint32_t sample : {0u, 1u}) seen.insert(Random(seed, purpose, step, sample).uniform());
  EXPECT_EQ(seen.size(), 24u);
  EXPECT_EQ(Random(1, Purpose::noise, 2, 3).uniform(), Random(1, Purpose::noise, 2, 3).uniform());
}

TEST(Random, NormalsHaveTheirMoments) {
  constexpr size_t count = 100001;  // odd: the last pair is cut
  std::vector<float> filled(count);
  Random(1, Purpose::noise, 0, 0).fill_normal(filled);
  std::vector<double> drawn(count);
  Random random(2, Purpose::noise, 0, 0);
  for (double& v : drawn) v = random.normal();
  const auto check = [](const auto& values) {
    double m1 = 0, m2 = 0, m3 = 0, m4 = 0, next = 0;
    for (size_t i = 0; i < values.size(); ++i) {
      const double v = values[i];
      ASSERT_TRUE(std::isfinite(v));
      m1 += v / count;
      m2 += v * v / count;
      m3 += v * v * v / count;
      m4 += v * v * v * v / count;
      next += v * values[(i + 1) % count] / count;
    }
    // Five standard errors: sqrt(variance of v^k / count), which is 1, 2, 15 and 96 for k = 1 to 4.
    const double error = 5 / std::sqrt(static_cast<double>(count));
    EXPECT_NEAR(m1, 0, error);
    EXPECT_NEAR(m2, 1, error * std::sqrt(2));
    EXPECT_NEAR(m3, 0, error * std::sqrt(15));
    EXPECT_NEAR(m4, 3, error * std::sqrt(96));
    EXPECT_NEAR(next, 0, error);
  };
  check(filled);
  check(drawn);
}

TEST(Random, BelowAndShuffle) {
  Random random(3, Purpose::order, 0, 0);
  std::vector<int64_t> counts(7);
  for (int i = 0; i < 7000; ++i) ++counts.at(random.below(7));
  for (const int64_t c : counts) EXPECT_NEAR(static_cast<double>(c), 1000, 150);  // five standard deviations
  std::vector<int64_t> items(50), sorted(50);
  for (size_t i = 0; i < items.size(); ++i) items[i] = sorted[i] = static_cast<int64_t>(i);
  random.shuffle(items);
  EXPECT_NE(items, sorted);
  EXPECT_THAT(items, testing::UnorderedElementsAreArray(sorted));
}

const TensorCache::Check anything = [](const NamedTensors&) { return std::string(); };

TEST(TensorCache, KeepsTensorsOnDisk) {
  const TempDir dir;
  TensorCache cache(dir / "cache", "test/1");
  EXPECT_FALSE(cache.contains("k"));
  EXPECT_EQ(cache.find("k", anything), nullptr);
  cache.put("k", {{"mean", ramp({2, 3}, 1)}, {"half", as_type(ramp({5}, 2), DType::bf16)}});
  TensorCache later(dir / "cache", "test/1");
  ASSERT_TRUE(later.contains("k"));
  const TensorCache::Entry found = later.find("k", anything);
  ASSERT_NE(found, nullptr);
  EXPECT_EQ(found->at("mean").data, ramp({2, 3}, 1).data);
  EXPECT_EQ(found->at("half").desc, (Desc{DType::bf16, {5}}));
  EXPECT_EQ(found->at("half").data, as_type(ramp({5}, 2), DType::bf16).data);
}

TEST(TensorCache, WithoutAFolderStaysInMemory) {
  TensorCache cache("", "test/1");
  cache.put("k", {{"x", ramp({2}, 1)}});
  EXPECT_TRUE(cache.contains("k"));
  EXPECT_NE(cache.find("k", anything), nullptr);
}

// However many entries there are, so many bytes of them are in memory; one that is used stays what it was.
TEST(TensorCache, KeepsAsMuchInMemoryAsItMay) {
  const TempDir dir;
  constexpr int64_t each = 100 * sizeof(float);
  TensorCache cache(dir / "cache", "test/1", 3 * each);
  const TensorCache::Entry used = cache.put("0", {{"x", ramp({100}, 0)}});
  for (int64_t i = 1; i < 50; ++i) {
    cache.put(std::to_string(i), {{"x", ramp({100}, i)}});
    EXPECT_LE(cache.kept(), 3 * each);
  }
  for (const int64_t i : {49, 0, 7, 48, 0}) {
    const TensorCache::Entry found = cache.find(std::to_string(i), anything);
    ASSERT_TRUE(found);
    EXPECT_EQ(found->at("x").data, ramp({100}, i).data);
    EXPECT_LE(cache.kept(), 3 * each);
  }
  EXPECT_EQ(used->at("x").data, ramp({100}, 0).data);
  TensorCache in_memory("", "test/1", 0);
  for (int64_t i = 0; i < 5; ++i) in_memory.put(std::to_string(i), {{"x", ramp({100}, i)}});
  EXPECT_EQ(in_memory.find("0", anything)->at("x").data, ramp({100}, 0).data) << "there is no file to read it from";
}

TEST(TensorCache, ADamagedEntryIsMadeAgain) {
  const TempDir dir;
  const std::filesystem::path file = dir / "cache/k.safetensors";
  TensorCache(dir / "cache", "test/1").put("k", {{"x", ramp({100}, 1)}});
  put(file, get(file).substr(0, 300));
  TensorCache cache(dir / "cache", "test/1");
  EXPECT_EQ(cache.find("k", anything), nullptr);
  EXPECT_THAT(take_warnings(), ElementsAre(AllOf(HasSubstr("made again"), HasSubstr(file.string()))));
  cache.put("k", {{"x", ramp({100}, 2)}});
  EXPECT_EQ(TensorCache(dir / "cache", "test/1").find("k", anything)->at("x").data, ramp({100}, 2).data);
  EXPECT_THAT(take_warnings(), IsEmpty());
}

// An entry is believed where it is the one that was put there, and what it should hold.
TEST(TensorCache, EntriesAreNotBelieved) {
  const TempDir dir;
  const auto entry = [&](const std::string& key) { return dir / ("cache/" + key + ".safetensors"); };
  const TensorCache::Check pair = [](const NamedTensors& tensors) -> std::string {
    return tensors.at("x").desc == Desc{DType::f32, {2}} ? "" : "expected a pair";
  };
  const auto fresh = [&] {
    TensorCache cache(dir / "cache", "test/1");
    cache.put("a", {{"x", ramp({2}, 1)}});
    cache.put("b", {{"x", ramp({2}, 2)}});
  };
  const auto found = [&](const std::string& kind = "test/1", const std::string& key = "a") {
    return TensorCache(dir / "cache", kind).find(key, pair) != nullptr;
  };
  const auto warned = [&](const char* why) { EXPECT_THAT(take_warnings(), ElementsAre(HasSubstr(why))); };
  fresh();
  EXPECT_TRUE(found());
  EXPECT_FALSE(found("test/2"));
  warned("expected test/2 a, found test/1 a");
  std::string bytes = get(entry("a"));
  bytes[bytes.size() - 3] = static_cast<char>(bytes[bytes.size() - 3] ^ 4);
  put(entry("a"), bytes);
  EXPECT_FALSE(found());
  warned("checksum");
  fresh();
  std::filesystem::rename(entry("b"), entry("a"));
  EXPECT_FALSE(found());
  warned("expected test/1 a, found test/1 b");
  TensorCache(dir / "cache", "test/1").put("a", {{"x", ramp({3}, 1)}});
  EXPECT_FALSE(found());
  warned("expected a pair");
}

TEST(TensorCache, AFolderInAnEntrysPlaceIsLeftThere) {
  const TempDir dir;
  std::filesystem::create_directories(dir / "cache/k.safetensors/mine");
  TensorCache cache(dir / "cache", "test/1");
  EXPECT_EQ(cache.find("k", anything), nullptr);
  cache.put("k", {{"x", ramp({2}, 1)}});
  EXPECT_NE(cache.find("k", anything), nullptr);
  EXPECT_TRUE(std::filesystem::exists(dir / "cache/k.safetensors/mine"));
  EXPECT_THAT(take_warnings(), ElementsAre(HasSubstr("made again"), HasSubstr("kept in memory")));
}

// Trained tensors of two small modules and an optimizer's states, each filled with values of its own.
struct Trained {
  Device device{tested_device()};
  std::unique_ptr<Adapters> adapters;
  std::unique_ptr<AdapterUpdate> update;

  explicit Trained(const std::string& rule = "adamw", int64_t rank = 2, bool average = false) {
    Graph graph(DType::f32);
    Value x = graph.add_input("x", {DType::f32, {3, 8}});
    for (const char* name : {"a.weight", "b.weight"})
      x = graph.add(linear_op, {x, graph.add_param(name, {DType::f32, {8, 8}})}, {}, 0)[0];
    const AdapterSpec spec{rank, 1, 0, 0};
    const auto modules = adapt(
        graph, [&](const std::string&) { return &spec; }, true);
    adapters = std::make_unique<Adapters>(graph, modules);
    if (average) adapters->add_section("ema");
    adapters->allocate(device);
    update = std::make_unique<AdapterUpdate>(device, built_plugins(), *adapters, rule);
  }
  void fill(int64_t seed) const {
    for (const std::string& section : adapters->sections())
      for (const AdapterTensor& t : adapters->tensors()) adapters->upload(section, t, ramp(t.shape, ++seed));
    update->fill([&](const Desc& desc) { return ramp(desc.shape, ++seed); });
  }
  // All that is saved: everything but the gradients.
  std::vector<std::vector<std::byte>> content() const {
    std::vector<std::vector<std::byte>> all;
    for (const std::string& section : adapters->sections())
      for (const AdapterTensor& t : adapters->tensors())
        if (section != "g") all.push_back(adapters->download(section, t).data);
    for (const StoredState& state : (*update)->states()) all.push_back((*update)->download(state).data);
    return all;
  }
};

const std::map<std::string, std::string> facts{{"network.linear", "2"}, {"train.seed", "42"}};

std::vector<std::string> files_in(const std::filesystem::path& folder) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) names.push_back(entry.path().filename());
  std::ranges::sort(names);
  return names;
}

TEST(State, RoundTrip) {
  const TempDir dir;
  const Trained saved, loaded;
  saved.fill(1);
  save_state(dir / "state", {12, {1024, 7}, facts}, *saved.adapters, **saved.update, 2);
  const auto state = load_state({dir / "state"}, facts, *loaded.adapters, **loaded.update);
  ASSERT_TRUE(state);
  EXPECT_EQ(state->step, 12);
  EXPECT_THAT(state->loss_scale, ElementsAre(1024, 7));
  EXPECT_EQ(loaded.content(), saved.content());
}

TEST(State, ChoicesComeBackByRank) {
  const TempDir dir;
  const Trained t;
  RunState state{3, {1, 0}, facts};
  state.choices = {{0, "a\tb\n"}, {11, "c\n"}};
  save_state(dir / "state", state, *t.adapters, **t.update, 2);
  EXPECT_EQ(check_state({dir / "state"}, facts)->choices, state.choices);
  EXPECT_EQ(load_state({dir / "state"}, facts, *t.adapters, **t.update)->choices, state.choices);
  const std::filesystem::path file = dir / "state/000000003.safetensors";
  Record record = read_record(file, {"state/1", "000000003"});
  record.metadata["choices.x"] = "c\n";
  std::vector<TensorToWrite> list;
  for (const auto& [name, value] : record.tensors) list.push_back({name, value.desc, value.data.data()});
  write_record(file, {"state/1", "000000003"}, list, record.metadata);
  EXPECT_THAT(error_of([&] { check_state({dir / "state"}, facts); }), HasSubstr("its choices are of no rank"));
}

// A build whose steps have other bits does not go on with a state, unless it is told to; what an older version wrote,
// which does not say, goes on.
TEST(State, OtherArithmeticIsRefused) {
  const TempDir dir;
  const Trained t;
  const auto with = [](const char* revision) {
    std::map<std::string, std::string> all = facts;
    all[arithmetic_fact] = revision;
    return all;
  };
  save_state(dir / "state", {1, {1, 0}, facts}, *t.adapters, **t.update, 2);
  EXPECT_EQ(check_state({dir / "state"}, with("revision 2"))->broken, "");
  save_state(dir / "state", {2, {1, 0}, with("revision 1")}, *t.adapters, **t.update, 2);
  EXPECT_EQ(check_state({dir / "state"}, with("revision 1"))->broken, "");
  EXPECT_THAT(error_of([&] { check_state({dir / "state"}, with("revision 2")); }),
              AllOf(HasSubstr("arithmetic of lora-host: the saved run has revision 1, this one revision 2"),
                    HasSubstr("--allow-changes")));
  const auto allowed = check_state({.folder = dir / "state", .allow_changes = true}, with("revision 2"));
  EXPECT_THAT(allowed->broken, HasSubstr("arithmetic of lora-host"));
}

TEST(State, RoundTripOfAnAverage) {
  const TempDir dir;
  const Trained saved("adamw", 2, true), loaded("adamw", 2, true);
  saved.fill(1);
  save_state(dir / "state", {.step = 12, .loss_scale = {1024, 7}, .facts = facts, .updates = 11, .averaged = 9},
             *saved.adapters, **saved.update, 2);
  const auto state = load_state({dir / "state"}, facts, *loaded.adapters, **loaded.update);
  ASSERT_TRUE(state);
  EXPECT_EQ(state->updates, 11);
  EXPECT_EQ(state->averaged, 9);
  EXPECT_EQ(loaded.content(), saved.content());
}

TEST(State, AnAverageOfOneSideIsSaid) {
  const TempDir dir;
  const Trained with("adamw", 2, true), without;
  with.fill(1);
  without.fill(1);
  save_state(dir / "with", {.step = 12, .facts = facts, .averaged = 12}, *with.adapters, **with.update, 2);
  save_state(dir / "without", {.step = 5, .facts = facts}, *without.adapters, **without.update, 2);
  EXPECT_FALSE(load_state({dir / "with"}, facts, *without.adapters, **without.update)->averaged);
  EXPECT_THAT(take_warnings(), ElementsAre(AllOf(HasSubstr("this one keeps none"), HasSubstr("after step 12"))));
  EXPECT_FALSE(load_state({dir / "without"}, facts, *with.adapters, **with.update)->averaged);
  EXPECT_THAT(take_warnings(), ElementsAre(AllOf(HasSubstr("begins as a copy"), HasSubstr("after step 5"))));
}

TEST(State, NothingToResumeFrom) {
  const TempDir dir;
  const Trained t;
  EXPECT_FALSE(load_state({dir / "absent"}, facts, *t.adapters, **t.update));
  put(dir / "state/notes.txt", "not a state");
  EXPECT_FALSE(load_state({dir / "state"}, facts, *t.adapters, **t.update));
}

TEST(State, KeepsTheNewestGenerations) {
  const TempDir dir;
  const Trained t;
  for (const int64_t step : {5, 50, 100}) save_state(dir / "state", {step, {1, 0}, facts}, *t.adapters, **t.update, 1);
  EXPECT_THAT(files_in(dir / "state"), ElementsAre("000000050.safetensors", "000000100.safetensors"));
}

TEST(State, DamagedGenerationsArePassedOver) {
  const TempDir dir;
  const Trained first, second, loaded;
  first.fill(1);
  second.fill(100);
  save_state(dir / "state", {1, {1, 0}, facts}, *first.adapters, **first.update, 3);
  save_state(dir / "state", {2, {1, 0}, facts}, *second.adapters, **second.update, 3);
  save_state(dir / "state", {3, {1, 0}, facts}, *second.adapters, **second.update, 3);
  const auto newest = dir / "state/000000003.safetensors", middle = dir / "state/000000002.safetensors";
  put(newest, get(newest).substr(0, get(newest).size() - 10));  // cut off
  std::string flipped = get(middle);
  flipped[flipped.size() - 100] ^= 1;  // one bit of a tensor
  put(middle, flipped);
  const auto state = load_state({dir / "state"}, facts, *loaded.adapters, **loaded.update);
  ASSERT_TRUE(state);
  EXPECT_EQ(state->step, 1);
  EXPECT_EQ(loaded.content(), first.content());
  EXPECT_THAT(take_warnings(), ElementsAre(AllOf(HasSubstr("passed over"), HasSubstr(newest.string())),
                                           AllOf(HasSubstr("checksum"), HasSubstr(middle.string()))));
}

// States that are there and cannot be used never become a start at step 0.
TEST(State, WhatDoesNotLoadStopsTheRun) {
  const TempDir dir;
  const Trained t;
  const auto at = [&](const char* step) { return dir / ("state/" + std::string(step) + ".safetensors"); };
  const auto load = [&](const StateSource& from) { return load_state(from, facts, *t.adapters, **t.update); };
  const StateSource own{.folder = dir / "state"};
  const auto save = [&](int64_t step) { save_state(dir / "state", {step, {1, 0}, facts}, *t.adapters, **t.update, 9); };
  save(1);
  save(2);
  // A read that fails: nothing is renamed, whichever file it is.
  for (const int error : {EIO, EACCES}) {
    set_read_fault_hook([&](const char* call, const std::filesystem::path& path) {
      return std::string_view(call) == "pread" && path == at("000000002") ? error : 0;
    });
    EXPECT_THAT(error_of([&] { load(own); }),
                AllOf(HasSubstr("000000002.safetensors"), HasSubstr("may be good"),
                      HasSubstr("Correct that and run again. Or do without it: Go on from " + at("000000001").string() +
                                " with --resume-from 1")));
    EXPECT_NE(error_of([&] { check_state(own, facts); }), "");
    EXPECT_EQ(load({.folder = dir / "state", .step = 1})->step, 1);
    set_read_fault_hook({});
  }
  EXPECT_THAT(files_in(dir / "state"), ElementsAre("000000001.safetensors", "000000002.safetensors"));
  EXPECT_THAT(error_of([&] { load({.folder = dir / "state", .step = 3}); }),
              AllOf(HasSubstr("no state of step 3"), HasSubstr("with --resume-from 2, or begin anew with")));
  // In another run's folder nothing is renamed.
  put(at("000000002"), "damaged");
  EXPECT_EQ(load({.folder = dir / "state", .own = false})->step, 1);
  EXPECT_THAT(files_in(dir / "state"), ElementsAre("000000001.safetensors", "000000002.safetensors"));
  // What is advised is of use for a state: the older one by name, and nothing about downloads.
  EXPECT_THAT(
      error_of([&] { load({.folder = dir / "state", .step = 2}); }),
      AllOf(HasSubstr(at("000000002").string() + ": 7 bytes, too short for a safetensors file\n"),
            HasSubstr("Go on from " + at("000000001").string() + " with --resume-from 1"), Not(HasSubstr("download"))));
  EXPECT_THAT(error_of([&] { load({.folder = dir / "state", .own = false, .step = 2}); }),
              HasSubstr("or leave --resume out to begin anew"));
  // None is good: the run stops, and they are left as they are.
  put(at("000000001"), "damaged too");
  EXPECT_THAT(error_of([&] { load(own); }), AllOf(HasSubstr("no good state"), HasSubstr("--resume-from none")));
  EXPECT_THAT(files_in(dir / "state"), ElementsAre("000000001.safetensors", "000000002.safetensors"));
  take_warnings();
  set_aside_states(dir / "state", std::nullopt);
  EXPECT_FALSE(load(own));
}

// A state is that of its step, whatever the file is called.
TEST(State, IsBoundToItsStep) {
  const TempDir dir;
  const Trained t;
  save_state(dir / "state", {2, {1, 0}, facts}, *t.adapters, **t.update, 2);
  save_state(dir / "state", {4, {1, 0}, facts}, *t.adapters, **t.update, 2);
  std::filesystem::rename(dir / "state/000000004.safetensors", dir / "state/000000099.safetensors");
  const auto state = load_state({dir / "state"}, facts, *t.adapters, **t.update);
  ASSERT_TRUE(state);
  EXPECT_EQ(state->step, 2);
  EXPECT_THAT(take_warnings(), ElementsAre(HasSubstr("expected state/1 000000099, found state/1 000000004")));
  EXPECT_THAT(files_in(dir / "state"), ElementsAre("000000002.safetensors", "000000099.safetensors.foreign"));
}

// Whole records whose tensors are not what a run uploads.
TEST(State, TypesAndShapesAreChecked) {
  const Trained t;
  const std::string name = "p/" + t.adapters->tensors()[0].name;
  const Shape shape = t.adapters->tensors()[0].shape;
  const HostTensor scale = floats({2}, {1, 0});
  struct Row {
    HostTensor tensor, scale;
    const char* error;
  };
  for (const Row& row : {Row{HostTensor(Desc{DType::i64, shape}), scale, "found int64"},
                         Row{HostTensor(Desc{DType::f16, shape}), scale, "found float16"},
                         Row{HostTensor(Desc{DType::f32, {1}}), scale, "found float32 [1]"},
                         Row{HostTensor(Desc{DType::f32, shape}), HostTensor(Desc{DType::f32, {0}}), "no loss_scale"},
                         Row{HostTensor(Desc{DType::f32, shape}), floats({2}, {NAN, 0}), "its loss scale is nan"}}) {
    const TempDir dir;
    std::filesystem::create_directories(dir / "state");
    std::map<std::string, std::string> metadata{{"updates", "1"}};
    for (const auto& [key, value] : facts) metadata["fact." + key] = value;
    write_record(
        dir / "state/000000001.safetensors", {"state/1", "000000001"},
        {{name, row.tensor.desc, row.tensor.data.data()}, {"loss_scale", row.scale.desc, row.scale.data.data()}},
        metadata);
    EXPECT_THAT(error_of([&] { load_state({dir / "state"}, facts, *t.adapters, **t.update); }), HasSubstr(row.error));
    take_warnings();
  }
}

// NaN and infinity are never saved; a generation that has them all the same is passed over.
TEST(State, IsFinite) {
  const TempDir dir;
  const Trained t;
  save_state(dir / "state", {1, {1, 0}, facts}, *t.adapters, **t.update, 2);
  const AdapterTensor& tensor = t.adapters->tensors()[1];
  HostTensor values = t.adapters->download("p", tensor);
  values.as<float>()[0] = std::numeric_limits<float>::infinity();
  t.adapters->upload("p", tensor, values);
  const std::string text = error_of([&] { save_state(dir / "state", {2, {1, 0}, facts}, *t.adapters, **t.update, 2); });
  EXPECT_THAT(text, AllOf(HasSubstr("step 2: NaN or infinity in 1 of"), HasSubstr("`p/" + tensor.name + "`")));
  EXPECT_THAT(files_in(dir / "state"), ElementsAre("000000001.safetensors"));
  Record record = read_record(dir / "state/000000001.safetensors", {"state/1", "000000001"});
  record.tensors.at("p/" + tensor.name).as<float>()[0] = NAN;
  std::vector<TensorToWrite> list;
  for (const auto& [name, value] : record.tensors) list.push_back({name, value.desc, value.data.data()});
  write_record(dir / "state/000000003.safetensors", {"state/1", "000000003"}, list, record.metadata);
  EXPECT_EQ(load_state({dir / "state"}, facts, *t.adapters, **t.update)->step, 1);
  EXPECT_THAT(take_warnings(), ElementsAre(HasSubstr("NaN or infinity in 1 of")));
}

TEST(State, ChangedFactsAreNamed) {
  const TempDir dir;
  const Trained t;
  save_state(dir / "state", {1, {1, 0}, facts}, *t.adapters, **t.update, 2);
  const std::string text = error_of([&] {
    load_state({dir / "state"}, {{"network.linear", "2"}, {"train.seed", "43"}, {"train.lr", "1"}}, *t.adapters,
               **t.update);
  });
  EXPECT_THAT(text, AllOf(HasSubstr("train.seed: the saved run has 42, this one 43"),
                          HasSubstr("train.lr: the saved run has"), testing::Not(HasSubstr("network.linear"))));
}

// adamw's m and v mean the same to adam; to lion only m does; sgd's buffer is its own.
TEST(State, OfAnotherOptimizerIsKeptWhereItMeansTheSame) {
  struct Switch {
    const char *from, *to;
    std::vector<std::string> kept;
    const char* says;
  };
  for (const Switch& change :
       {Switch{"adamw", "adam", {"m", "v"}, "optimizer 'adam' takes over from 'adamw': kept m, v; begun anew: none"},
        Switch{"adamw", "lion", {"m"}, "optimizer 'lion' takes over from 'adamw': kept m; begun anew: none"},
        Switch{"lion", "adamw", {"m"}, "optimizer 'adamw' takes over from 'lion': kept m; begun anew: v"},
        Switch{"prodigy", "adamw", {}, "optimizer 'adamw' takes over from 'prodigy': kept none; begun anew: m, v"}}) {
    SCOPED_TRACE(std::string(change.from) + " -> " + change.to);
    const TempDir dir;
    const Trained saved(change.from), loaded(change.to), fresh(change.to);
    saved.fill(1);
    save_state(dir / "state", {1, {1, 0}, facts, 7}, *saved.adapters, **saved.update, 2);
    const auto state = load_state({dir / "state"}, facts, *loaded.adapters, **loaded.update);
    ASSERT_TRUE(state);
    EXPECT_EQ(state->updates, std::string(change.says).ends_with("anew: none") ? 7 : 0);
    EXPECT_THAT(take_warnings(), ElementsAre(HasSubstr(change.says)));
    for (const StoredState& own : (*loaded.update)->states()) {
      const bool kept = std::ranges::find(change.kept, own.spec.name) != change.kept.end();
      const Trained& source = kept ? saved : fresh;
      for (const StoredState& other : (*source.update)->states())
        if (other.key == own.key) {
          EXPECT_EQ((*loaded.update)->download(own).data, (*source.update)->download(other).data) << own.key;
        }
    }
  }
}

TEST(State, AnotherRankIsRefused) {
  const TempDir dir;
  const Trained saved, loaded("adamw", 4);
  save_state(dir / "state", {1, {1, 0}, facts}, *saved.adapters, **saved.update, 2);
  EXPECT_THAT(error_of([&] { load_state({dir / "state"}, facts, *loaded.adapters, **loaded.update); }),
              AllOf(HasSubstr("a.lora_down.weight"), HasSubstr("[4, 8]")));
}

}  // namespace
}  // namespace lh::train_test
