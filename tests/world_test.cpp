// Processes that train together, as threads of this one: texts to all, sums in order, who is missed, entries of a cache
// that are made once, steps of one shape. mpi_test.sh has real ones.
#include "world/world.h"

#include <gmock/gmock.h>

#include <atomic>
#include <deque>
#include <map>
#include <mutex>
#include <random>
#include <set>
#include <thread>

#include "data/batches.h"
#include "encode/shared_work.h"
#include "io/claims.h"
#include "support/io_files.h"
#include "train/gradient_sum.h"

namespace lh::test::world_test {
namespace {

// What threads share in the place of a network.
struct Wire {
  explicit Wire(int ranks) : beats(static_cast<size_t>(ranks)) {}
  int size() const { return static_cast<int>(beats.size()); }
  std::mutex mutex;
  std::map<int64_t, std::map<int, Pieces>> sent;  // by exchange and rank
  std::vector<std::deque<Beat>> beats;            // for each rank
};

class Thread final : public Transport {
 public:
  Thread(Wire& wire, int rank, std::atomic<bool>& frozen) : wire_(wire), rank_(rank), frozen_(frozen) {}
  int rank() const override { return rank_; }
  int size() const override { return wire_.size(); }
  std::string library() const override { return "threads"; }
  void start(Parcel& parcel) override {
    const std::lock_guard lock(wire_.mutex);
    parcel_ = &parcel;
    wire_.sent[++number_][rank_] = parcel.out;
  }
  bool arrived() override {
    const std::lock_guard lock(wire_.mutex);
    auto& all = wire_.sent[number_];
    if (frozen_ || static_cast<int>(all.size()) < size()) return false;
    for (const auto& [from, out] : all) {
      const auto r = static_cast<size_t>(from), own = static_cast<size_t>(rank_);
      EXPECT_EQ(out.bytes[own], parcel_->in.bytes[r]);
      std::copy_n(out.data.begin() + out.at[own], out.bytes[own], parcel_->in.data.begin() + parcel_->in.at[r]);
    }
    return true;
  }
  void send(int to, const Beat& beat) override {
    const std::lock_guard lock(wire_.mutex);
    if (!frozen_) wire_.beats[static_cast<size_t>(to)].push_back(beat);
  }
  bool receive(Beat& beat) override {
    const std::lock_guard lock(wire_.mutex);
    auto& own = wire_.beats[static_cast<size_t>(rank_)];
    if (frozen_ || own.empty()) return false;
    beat = own.front();
    own.pop_front();
    return true;
  }
  void close() override {}

 private:
  Wire& wire_;
  int rank_;
  std::atomic<bool>& frozen_;
  Parcel* parcel_ = nullptr;
  int64_t number_ = 0;
};

// Runs the body once for each rank, side by side; gives the error of each, empty where there was none.
std::vector<std::string> run_ranks(int ranks, const std::function<void(World&, std::atomic<bool>& frozen)>& body) {
  Wire wire(ranks);
  std::vector<std::string> errors(static_cast<size_t>(ranks));
  std::vector<std::atomic<bool>> frozen(static_cast<size_t>(ranks));
  std::vector<std::thread> threads;
  for (int r = 0; r < ranks; ++r)
    threads.emplace_back([&, r] {
      const auto i = static_cast<size_t>(r);
      errors[i] = error_of([&] {
        const auto world =
            world_over([&] { return std::make_unique<Thread>(wire, r, frozen[i]); }, /*silence_seconds=*/2);
        body(*world, frozen[i]);
      });
    });
  for (std::thread& thread : threads) thread.join();
  return errors;
}

using testing::AllOf;
using testing::Each;
using testing::HasSubstr;
using testing::IsEmpty;

TEST(World, AloneIsNothing) {
  World& one = World::alone();
  EXPECT_EQ(one.size(), 1);
  EXPECT_TRUE(one.first());
  EXPECT_THAT(one.gather("mine"), testing::ElementsAre("mine"));
  EXPECT_FALSE(one.any(false));
  require_same(one, {{"train.lr", "1e-4"}});
}

// Short texts travel with their sizes, long ones after them.
TEST(World, TextsComeInTheOrderOfRanks) {
  for (const size_t longest : {0, 1, 56, 57, 5000}) {
    SCOPED_TRACE(longest);
    EXPECT_THAT(
        run_ranks(3,
                  [&](World& world, auto&) {
                    const auto text = [&](int rank) {
                      return std::string(longest * static_cast<size_t>(rank) / 2, static_cast<char>('a' + rank));
                    };
                    EXPECT_THAT(world.gather(text(world.rank())), testing::ElementsAre(text(0), text(1), text(2)));
                    EXPECT_EQ(world.of_first(text(2 - world.rank())), text(2));
                    EXPECT_TRUE(world.any(world.rank() == 1));
                    EXPECT_FALSE(world.any(false));
                    EXPECT_EQ(world.local_rank(), world.rank());
                    EXPECT_EQ(world.local_size(), 3);
                    world.finish();
                  }),
        Each(IsEmpty()));
  }
}

TEST(World, RanksThatDifferAreNamedWithTheirValues) {
  const auto errors = run_ranks(4, [](World& world, auto&) {
    std::map<std::string, std::string> facts{{"model", "flux"}, {"train.lr", world.rank() == 2 ? "2e-4" : "1e-4"}};
    if (world.rank() > 1) facts["plugin mine.so"] = "abc";
    require_same(world, facts);
  });
  EXPECT_THAT(errors, Each(AllOf(HasSubstr("train.lr: ranks 0, 1 and 3 have 1e-4, rank 2 has 2e-4"),
                                 HasSubstr("plugin mine.so: ranks 0 and 1 have (none), ranks 2 and 3 have abc"),
                                 testing::Not(HasSubstr("model")))));
}

TEST(World, TheRankWithOtherWeightsIsNamed) {
  EXPECT_THAT(run_ranks(3, [](World& w, auto&) { require_same_weights(w, w.rank() == 1 ? "b" : "a", 7); }),
              Each(AllOf(HasSubstr("after step 7: rank 1 ("), HasSubstr("other weights than most"))));
  EXPECT_THAT(run_ranks(2, [](World& w, auto&) { require_same_weights(w, w.first() ? "b" : "a", 7); }),
              Each(AllOf(HasSubstr("rank 0 ("), HasSubstr("rank 1 ("), HasSubstr("have different weights"))));
}

TEST(World, ASilentRankIsMissed) {
  std::atomic<int> waiting{2};
  const auto errors = run_ranks(3, [&](World& world, std::atomic<bool>& frozen) {
    world.meet();
    if (world.rank() == 1) {
      frozen = true;
      while (waiting > 0) std::this_thread::sleep_for(std::chrono::milliseconds(10));
      return;
    }
    try {
      world.meet();
    } catch (const RankLost&) {
      --waiting;
      EXPECT_EQ(world.rescues(), world.rank() == 0);
      throw;
    }
  });
  EXPECT_THAT(errors[0], AllOf(HasSubstr("lost rank 1 ("), HasSubstr("has been silent for 2 seconds")));
  EXPECT_THAT(errors[2], HasSubstr("lost rank 1 ("));
}

// It is there, and does not come: whoever waits at a step says which, after the limit that it gave.
TEST(World, ARankThatDoesNotComeIsMissed) {
  std::atomic<int> waiting{2};
  const auto errors = run_ranks(3, [&](World& world, auto&) {
    world.meet();
    if (world.rank() == 2) {
      while (waiting > 0) std::this_thread::sleep_for(std::chrono::milliseconds(10));
      return;
    }
    auto parcel = std::make_shared<Parcel>();
    for (Pieces* pieces : {&parcel->out, &parcel->in}) pieces->at = pieces->bytes = {0, 0, 0};
    try {
      world.exchange(parcel, 2);
    } catch (const Error&) {
      --waiting;
      throw;
    }
  });
  for (const size_t r : {0u, 1u})
    EXPECT_THAT(errors[r], AllOf(HasSubstr("lost rank 2 ("), HasSubstr("does not come to the step")));
}

TEST(World, ARankThatEndsWithAnErrorTakesTheOthersAlong) {
  const auto errors = run_ranks(2, [](World& world, auto&) {
    world.meet();
    if (world.first()) {
      world.leave(static_cast<int>(Code::numeric));
      return;
    }
    try {
      world.meet();
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), Code::numeric);
      throw;
    }
  });
  EXPECT_THAT(errors[1], AllOf(HasSubstr("rank 0 ("), HasSubstr("has ended with exit status 5")));
}

TEST(WeightShare, PartsAndTheRestAreTheWhole) {
  EXPECT_EQ(WeightShare{}.kept(1001), 1001);
  for (const int size : {2, 3, 8})
    for (const int64_t bytes : {0, 1, 15, 16 * size, 1001, 18874368}) {
      const WeightShare share{.rank = size - 1, .size = size};
      EXPECT_EQ(size * share.part(bytes) + share.rest(bytes), bytes);
      EXPECT_EQ(share.kept(bytes), share.part(bytes) + share.rest(bytes));
      EXPECT_LT(share.rest(bytes), 16 * size);
      EXPECT_EQ(share.part(bytes) % 16, 0);
    }
}

// Every element belongs to one part of one bucket, which is whole when the last of its tensors is there.
TEST(GradientBuckets, AreAllOfTheTensors) {
  std::mt19937 random(3);
  for (const int64_t most : {16, 40, 1000})
    for (const int64_t ranks : {1, 2, 3, 7}) {
      std::vector<GradientRange> tensors;
      for (int64_t begin = 0; tensors.size() < 20; begin += tensors.back().elements)
        tensors.push_back({begin, 1 + static_cast<int64_t>(random() % 90)});
      const int64_t elements = tensors.back().begin + tensors.back().elements;
      std::ranges::shuffle(tensors, random);
      std::vector<int> owners(static_cast<size_t>(elements), 0);
      for (const GradientBucket& bucket : gradient_buckets(tensors, most)) {
        EXPECT_LE(bucket.elements, most);
        for (int64_t rank = 0; rank < ranks; ++rank) {
          int64_t part = 0;
          for (const GradientRange& range : bucket.part(rank, ranks)) {
            part += range.elements;
            for (int64_t i = range.begin; i < range.begin + range.elements; ++i) {
              ++owners[static_cast<size_t>(i)];
              const auto tensor = std::ranges::find_if(
                  tensors, [&](const GradientRange& t) { return t.begin <= i && i < t.begin + t.elements; });
              EXPECT_LT(static_cast<size_t>(tensor - tensors.begin()), bucket.after);
            }
          }
          EXPECT_LE(part, most_in_part(bucket.elements, ranks));
        }
      }
      EXPECT_THAT(owners, Each(1));
    }
}

// To bfloat16 and back.
void round_to(DType travel, std::vector<float>& values, size_t count) {
  if (travel == DType::f32) return;
  const HostTensor whole = HostTensor::from_floats({static_cast<int64_t>(values.size())}, values);
  const HostTensor wide = converted(converted(whole, travel), DType::f32);
  std::copy_n(wide.as<float>().begin(), count, values.begin());
}

// For any number of ranks and micro-batches the sum is the one that one process makes of them, to the bit; where they
// travel as bfloat16, the one that it would make of what is rounded so.
TEST(GradientSum, IsTheSumOfOneProcess) {
  struct Case {
    int ranks;
    int64_t micro_batches, elements;
    DType travel = DType::f32;
  };
  for (const auto& [ranks, count, elements, travel] :
       {Case{2, 2, 1}, Case{2, 5, 1000}, Case{3, 3, 47}, Case{3, 2, 333}, Case{4, 9, 16}, Case{2, 2, (4 << 20) + 77},
        Case{2, 2, 1, DType::bf16}, Case{2, 5, 1000, DType::bf16}, Case{3, 2, 333, DType::bf16},
        Case{4, 9, 16, DType::bf16}, Case{2, 2, (4 << 20) + 77, DType::bf16}}) {
    SCOPED_TRACE(
        fmt::format("{} ranks, {} micro-batches, {} elements, {}", ranks, count, elements, dtype_name(travel)));
    std::mt19937 random(static_cast<unsigned>(elements));
    std::normal_distribution<float> normal;
    std::vector<std::vector<float>> gradients(static_cast<size_t>(count));
    for (auto& one : gradients) {
      one.resize(static_cast<size_t>(elements) + 1);  // the last one is the loss
      for (float& v : one) v = normal(random);
    }
    const float share = 1.0f / static_cast<float>(count);
    // The backward pass ends them in another order than they lie in.
    std::vector<GradientRange> tensors;
    for (int64_t i = 0; i < 7; ++i)
      if (const int64_t begin = elements * i / 7, end = elements * (i + 1) / 7; begin < end)
        tensors.push_back({begin, end - begin});
    std::ranges::shuffle(tensors, random);
    Device device("cpu");
    std::vector<float> wanted(static_cast<size_t>(elements) + 1);
    // Rounding to bfloat16 moves a number by 2^-8 of it at most: each summand, and then the sum.
    std::vector<double> exact(wanted.size()), bound(wanted.size());
    const std::vector<std::vector<float>> unrounded = gradients;
    for (size_t m = 0; m < gradients.size(); ++m) {
      for (size_t i = 0; i < exact.size(); ++i) {
        exact[i] += static_cast<double>(share) * static_cast<double>(gradients[m][i]);
        bound[i] += static_cast<double>(share) * std::abs(static_cast<double>(gradients[m][i])) * 0x1.01p-7;
      }
      round_to(travel, gradients[m], static_cast<size_t>(elements));
      const Desc desc{DType::f32, {elements + 1}};
      const lk_accumulate_params params{.x = kernel_tensor(desc, gradients[m].data()),
                                        .total = kernel_tensor(desc, wanted.data()),
                                        .alpha = share,
                                        .accumulate = m > 0};
      device.check(lk_accumulate(device.context(), &params), "sum");
    }
    round_to(travel, wanted, static_cast<size_t>(elements));
    for (size_t i = 0; i < exact.size(); ++i) ASSERT_LE(std::abs(static_cast<double>(wanted[i]) - exact[i]), bound[i]);
    EXPECT_THAT(run_ranks(ranks,
                          [&](World& world, auto&) {
                            Device own("cpu");
                            const auto n = static_cast<size_t>(elements);
                            std::vector<float> g(n), total(n, -1);
                            float loss = 0, loss_sum = -1;
                            Collectives collectives(world, own, "cpu");
                            GradientSum sum(collectives, own,
                                            {.gradient = reinterpret_cast<std::byte*>(g.data()),
                                             .total = reinterpret_cast<std::byte*>(total.data()),
                                             .loss = reinterpret_cast<std::byte*>(&loss),
                                             .loss_total = reinterpret_cast<std::byte*>(&loss_sum)},
                                            tensors, true, travel);
                            for (int64_t done = 0; done < count; done += ranks) {
                              if (done + world.rank() < count) {
                                const auto& mine = unrounded[static_cast<size_t>(done + world.rank())];
                                std::copy_n(mine.begin(), n, g.begin());
                                loss = mine.back();
                              }
                              collectives.come(done + world.rank() < count);
                              sum.begin({.ranks = std::min<int64_t>(ranks, count - done),
                                         .share = share,
                                         .first = done == 0,
                                         .last = done + ranks >= count});
                              // Ranks need not know of them in the same steps.
                              for (size_t t = 0; t < tensors.size(); t += 1 + static_cast<size_t>(world.rank()))
                                sum.there(t);
                              sum.end();
                            }
                            EXPECT_TRUE(std::equal(total.begin(), total.end(), wanted.begin()));
                            EXPECT_EQ(loss_sum, wanted.back());
                            world.finish();
                          }),
                Each(IsEmpty()));
  }
}

TEST(Claims, AreOneProcessesAtATimeAndEndWithIt) {
  const TempDir dir;
  Claims one(dir.path()), other(dir.path());
  EXPECT_TRUE(one.take("a"));
  EXPECT_FALSE(other.take("a"));
  EXPECT_TRUE(other.take("b"));
  one.release("a");
  EXPECT_TRUE(other.take("a"));
  {
    Claims ends(dir.path());
    EXPECT_TRUE(ends.take("c"));
    EXPECT_FALSE(one.take("c"));
  }
  EXPECT_TRUE(one.take("c"));
}

TEST(SharedWork, EveryEntryIsMadeOnce) {
  const TempDir dir;
  std::vector<std::string> keys;
  for (int i = 0; i < 40; ++i) keys.push_back(fmt::format("key{}", i));
  std::mutex mutex;
  std::map<std::string, int> made;
  std::set<int> makers;
  EXPECT_THAT(run_ranks(3,
                        [&](World& world, auto&) {
                          TensorCache cache(dir.path(), "test/1");
                          const auto make = [&](size_t i) {
                            std::this_thread::sleep_for(std::chrono::milliseconds(5));
                            cache.put(keys[i], {{"x", HostTensor::from_floats({1}, std::vector<float>{1.0f})}});
                            const std::lock_guard lock(mutex);
                            ++made[keys[i]];
                            makers.insert(world.rank());
                          };
                          make_together(world, {cache, "encoding", keys, make});
                          for (const std::string& key : keys) EXPECT_TRUE(cache.contains(key)) << key;
                          world.finish();
                        }),
              Each(IsEmpty()));
  EXPECT_EQ(made.size(), keys.size());
  for (const auto& [key, times] : made) EXPECT_EQ(times, 1) << key;
  EXPECT_EQ(makers.size(), 3u);
}

Dataset dataset_of(const std::vector<int64_t>& samples_by_bucket) {
  Dataset dataset;
  for (size_t b = 0; b < samples_by_bucket.size(); ++b)
    for (int64_t i = 0; i < samples_by_bucket[b]; ++i) {
      Sample sample;
      sample.bucket = {64 * (static_cast<int64_t>(b) + 1), 64};
      sample.repeats = 1;
      dataset.samples.push_back(sample);
    }
  return dataset;
}

// Of P batches in an epoch, in groups of G, only those that do not fill a group of their kind are in steps of several
// kinds; every sample still comes once an epoch, wherever the epoch begins within a step.
TEST(BatchOrder, StepsAreOfOneKind) {
  Dataset d = dataset_of({13, 16, 3});
  for (Sample& sample : d.samples) {
    if (sample.bucket.width == 128) sample.batch_size = 2;
    if (sample.bucket.width == 192) sample.bucket.width = 128;  // one more kind of that bucket
  }
  for (const int64_t group : {2, 3, 4, 5, 7, 8}) {
    SCOPED_TRACE(group);
    BatchOrder order(d, 7, group);
    const int64_t epoch = order.batches_per_epoch();
    ASSERT_EQ(epoch, 24);
    for (int64_t e = 0; e < 4; ++e) {
      std::set<int64_t> seen;
      for (int64_t i = 0; i < epoch; ++i) {
        const Batch& batch = order.at(e * epoch + i);
        seen.insert(batch.samples.begin(), batch.samples.end());
      }
      EXPECT_EQ(seen.size(), d.samples.size()) << "epoch " << e;
    }
    int64_t mixed = 0;
    const int64_t steps = 4 * epoch / group;
    for (int64_t s = 0; s < steps; ++s) {
      std::set<BatchKind> kinds;
      for (int64_t i = 0; i < group; ++i) kinds.insert(order.at(s * group + i).kind);
      mixed += kinds.size() > 1;
    }
    // At most group - 1 batches of each of the three kinds are left over in an epoch, and a step is cut at its end.
    EXPECT_LE(mixed, 4 * (3 * (group - 1) / group + 1));
    EXPECT_LT(mixed, steps);
  }
}

}  // namespace
}  // namespace lh::test::world_test
