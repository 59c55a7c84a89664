// lk_attention beyond the table of kernel_cases.h: both passes with every tensor of one type (a GPU has library kernels
// for 16 bit), exact zeros where nothing is seen, equal bits, and refused arguments.
#include <gmock/gmock.h>

#include <thread>

#include "lora_kernels_trace.h"
#include "support/kernel_cases.h"

namespace lk_test::kernels_attention_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr double scale = 0.5;

struct Results {
  Values o, lse, dq, dk, dv;
};

// All results for q, k, v, do in float64: of the queries that see a head of keys.
void add_truth(Results& r, const AttentionCase& a, int64_t batch, int64_t key_head, const Values& q, const Values& k,
               const Values& v, const Values& d_o) {
  const auto key = [&](int64_t j) { return ((batch * a.sk + j) * a.key_heads + key_head) * a.d; };
  const auto dot = [&](const Values& x, int64_t at, const Values& y, int64_t from) {
    double sum = 0;
    for (int64_t e = 0; e < a.d; ++e) sum += x[at + e] * y[from + e];
    return sum;
  };
  for (int64_t t = 0; t < a.sq * a.group(); ++t) {
    const int64_t i = t / a.group(), h = key_head * a.group() + t % a.group();
    const int64_t row = ((batch * a.sq + i) * a.h + h) * a.d;
    Values p(static_cast<size_t>(a.sk)), slope(p.size(), 1.0);
    double total = 0;
    for (int64_t j = 0; j < a.sk; ++j) {
      if (!a.seen(batch, i, j)) continue;
      double s = scale * dot(q, row, k, key(j));
      if (a.soft_cap > 0) {
        const double tanh = std::tanh(s / a.soft_cap);
        s = a.soft_cap * tanh;
        slope[j] = 1 - tanh * tanh;
      }
      total += p[j] = std::exp(s);
    }
    r.lse[(batch * a.h + h) * a.sq + i] = std::log(total);
    if (total == 0) continue;
    for (int64_t j = 0; j < a.sk; ++j) {
      p[j] /= total;
      for (int64_t e = 0; e < a.d; ++e) r.o[row + e] += p[j] * v[key(j) + e];
    }
    const double delta = dot(d_o, row, r.o, row);
    for (int64_t j = 0; j < a.sk; ++j) {
      const double ds = scale * slope[j] * p[j] * (dot(d_o, row, v, key(j)) - delta);
      for (int64_t e = 0; e < a.d; ++e) {
        r.dq[row + e] += ds * k[key(j) + e];
        r.dk[key(j) + e] += ds * q[row + e];
        r.dv[key(j) + e] += p[j] * d_o[row + e];
      }
    }
  }
}

Results truth(const AttentionCase& a, const Values& q, const Values& k, const Values& v, const Values& d_o) {
  Results r{Values(q.size()), Values(static_cast<size_t>(a.b * a.h * a.sq)), Values(q.size()), Values(k.size()),
            Values(k.size())};
  const int64_t workers = std::clamp<int64_t>(std::thread::hardware_concurrency(), 1, 32);
  std::vector<std::jthread> threads;
  for (int64_t worker = 0; worker < workers; ++worker)
    threads.emplace_back([&, worker] {
      for (int64_t t = worker; t < a.b * a.key_heads; t += workers)
        add_truth(r, a, t / a.key_heads, t % a.key_heads, q, k, v, d_o);
    });
  threads.clear();  // joins
  return r;
}

// A case in memory; outputs are NaN until they are written.
struct Memory {
  AttentionCase a;
  AttentionMasks masks;
  Tensor q, k, v, d_o, o, lse, dq, dk, dv;

  Memory(lk_context* context, std::mt19937& random, const AttentionCase& given, lk_dtype dtype)
      : a(given),
        masks(given),
        q(random_tensor(context, random, {a.b, a.sq, a.h, a.d}, dtype, -1, 1)),
        k(random_tensor(context, random, {a.b, a.sk, a.key_heads, a.d}, dtype, -1, 1)),
        v(random_tensor(context, random, {a.b, a.sk, a.key_heads, a.d}, dtype, -1, 1)),
        d_o(random_tensor(context, random, {a.b, a.sq, a.h, a.d}, dtype, -1, 1)),
        o(poisoned(context, {a.b, a.sq, a.h, a.d}, dtype)),
        lse(poisoned(context, {a.b, a.h, a.sq}, LK_F32)),
        dq(poisoned(context, {a.b, a.sq, a.h, a.d}, dtype)),
        dk(poisoned(context, {a.b, a.sk, a.key_heads, a.d}, dtype)),
        dv(poisoned(context, {a.b, a.sk, a.key_heads, a.d}, dtype)) {}

  lk_attention_backward_params params() const {
    lk_attention_backward_params p{};
    p.d_o = d_o.view(), p.q = q.view(), p.k = k.view(), p.v = v.view(), p.o = o.view(), p.lse = lse.view();
    p.key_lengths = masks.lengths_of(a), p.key_mask = masks.mask_of(a);
    p.scale = static_cast<float>(scale), p.soft_cap = static_cast<float>(a.soft_cap), p.causal = a.causal;
    p.dq = dq.view(), p.dk = dk.view(), p.dv = dv.view();
    return p;
  }
};

// To few keys, which a GPU has own kernels for: widths of their tiles filled and not, queries that do not fill theirs,
// heads whose queries are one block's, those of several blocks, and tiles that a block has one after the other.
std::vector<AttentionCase> few_keys() {
  return {{.b = 1, .sq = 1024, .sk = 77, .h = 3, .d = 64, .key_heads = 3},
          {.b = 2, .sq = 77, .sk = 77, .h = 2, .d = 64, .key_heads = 2},
          {.b = 2, .sq = 300, .sk = 16, .h = 2, .d = 64, .key_heads = 2},
          {.b = 1, .sq = 300, .sk = 33, .h = 64, .d = 64, .key_heads = 64},
          {.b = 3, .sq = 130, .sk = 20, .h = 90, .d = 64, .key_heads = 90, .mask = true},
          {.b = 1, .sq = 300, .sk = 128, .h = 2, .d = 64, .key_heads = 2},
          {.b = 1, .sq = 140, .sk = 81, .h = 64, .d = 64, .key_heads = 64},
          {.b = 3, .sq = 300, .sk = 77, .h = 2, .d = 64, .key_heads = 2, .lengths = true},
          {.b = 3, .sq = 300, .sk = 77, .h = 2, .d = 64, .key_heads = 2, .mask = true},
          {.b = 3, .sq = 130, .sk = 128, .h = 2, .d = 64, .key_heads = 2, .lengths = true, .mask = true}};
}

// Heads of 128 that blocks of a GPU with 132 processors pass over in teams (attention_wide_order.cuh): with one
// follower each and with two, more heads than teams, an odd number of rows, rows and keys that do not fill their tiles,
// and keys that are not seen; the last two with heads in groups.
std::vector<AttentionCase> for_teams() {
  return {{.b = 1, .sq = 1000, .sk = 400, .h = 52, .d = 128, .key_heads = 52},
          {.b = 2, .sq = 1600, .sk = 1130, .h = 12, .d = 128, .key_heads = 12},
          {.b = 2, .sq = 1100, .sk = 400, .h = 26, .d = 128, .key_heads = 26, .lengths = true, .mask = true},
          {.b = 1, .sq = 1000, .sk = 400, .h = 52, .d = 128, .key_heads = 13},
          {.b = 2, .sq = 1100, .sk = 400, .h = 26, .d = 128, .key_heads = 13, .lengths = true, .mask = true}};
}

// What cuDNN has no plan for, each in another way, for each width of the kernels with matrix instructions: heads that
// fill it and not, and rows that do not fill tiles.
std::vector<AttentionCase> for_fragments() {
  return {{.b = 3, .sq = 65, .sk = 140, .h = 2, .d = 40, .key_heads = 1, .causal = true, .lengths = true, .mask = true},
          {.b = 2, .sq = 130, .sk = 65, .h = 4, .d = 128, .key_heads = 2, .causal = true},
          {.b = 3, .sq = 70, .sk = 100, .h = 2, .d = 96, .key_heads = 2, .mask = true, .soft_cap = 2},
          {.b = 3, .sq = 100, .sk = 70, .h = 2, .d = 160, .key_heads = 1, .causal = true, .lengths = true},
          {.b = 1, .sq = 130, .sk = 140, .h = 2, .d = 136, .key_heads = 2, .mask = true, .soft_cap = 1.5},
          {.b = 2, .sq = 70, .sk = 130, .h = 4, .d = 256, .key_heads = 2, .causal = true, .mask = true},
          {.b = 1, .sq = 100, .sk = 33, .h = 2, .d = 168, .key_heads = 2, .soft_cap = 2}};
}

// The second and the one for a GPU alone have more tasks than a GPU has processors, that one more than twice as many:
// some are begun in one processor and ended in another. Of the third there are as many of 128 numbers, in two items,
// with rows that do not fill the tiles, and with keys that are not seen the next two.
std::vector<AttentionCase> cases() {
  std::vector<AttentionCase> all = {
      {.b = 2, .sq = 65, .sk = 130, .h = 2, .d = 64, .key_heads = 2},
      {.b = 1, .sq = 140, .sk = 520, .h = 27, .d = 64, .key_heads = 27},
      {.b = 2, .sq = 130, .sk = 270, .h = 23, .d = 128, .key_heads = 23},
      {.b = 3, .sq = 70, .sk = 270, .h = 15, .d = 128, .key_heads = 15, .lengths = true},
      {.b = 3, .sq = 70, .sk = 270, .h = 15, .d = 128, .key_heads = 15, .lengths = true, .mask = true},
      {.b = 2, .sq = 130, .sk = 270, .h = 24, .d = 128, .key_heads = 8},
      {.b = 2, .sq = 65, .sk = 130, .h = 4, .d = 64, .key_heads = 2},
      {.b = 1, .sq = 128, .sk = 128, .h = 4, .d = 32, .key_heads = 1},
      {.b = 2, .sq = 130, .sk = 130, .h = 2, .d = 64, .key_heads = 2, .causal = true},
      {.b = 1, .sq = 128, .sk = 128, .h = 2, .d = 128, .key_heads = 2, .causal = true},
      {.b = 2, .sq = 65, .sk = 65, .h = 4, .d = 64, .key_heads = 2, .causal = true},
      {.b = 3, .sq = 65, .sk = 65, .h = 2, .d = 64, .key_heads = 2, .causal = true, .lengths = true},
      {.b = 3, .sq = 65, .sk = 65, .h = 4, .d = 64, .key_heads = 2, .causal = true, .lengths = true},
      {.b = 3, .sq = 65, .sk = 65, .h = 4, .d = 64, .key_heads = 2, .lengths = true},
      {.b = 2, .sq = 33, .sk = 65, .h = 2, .d = 64, .key_heads = 2, .causal = true},
      {.b = 2, .sq = 65, .sk = 33, .h = 2, .d = 64, .key_heads = 1, .causal = true},
      {.b = 3, .sq = 65, .sk = 130, .h = 2, .d = 64, .key_heads = 2, .mask = true},
      {.b = 1, .sq = 33, .sk = 600, .h = 2, .d = 64, .key_heads = 2, .mask = true},
      {.b = 3, .sq = 65, .sk = 130, .h = 4, .d = 64, .key_heads = 2, .mask = true},
      {.b = 3, .sq = 65, .sk = 130, .h = 4, .d = 64, .key_heads = 1, .lengths = true, .mask = true},
      {.b = 2, .sq = 65, .sk = 65, .h = 2, .d = 64, .key_heads = 2, .causal = true, .mask = true},
      {.b = 2, .sq = 65, .sk = 130, .h = 4, .d = 64, .key_heads = 2, .soft_cap = 1.5},
      {.b = 3, .sq = 65, .sk = 65, .h = 4, .d = 64, .key_heads = 2, .causal = true, .mask = true, .soft_cap = 2},
      {.b = 1, .sq = 300, .sk = 129, .h = 2, .d = 64, .key_heads = 2},
      {.b = 1, .sq = 1000, .sk = 300, .h = 5, .d = 64, .key_heads = 5},
      // Eight heads of 320, 640 and 1280 channels, to an image and to text.
      {.b = 2, .sq = 260, .sk = 260, .h = 8, .d = 40, .key_heads = 8},
      {.b = 2, .sq = 260, .sk = 77, .h = 8, .d = 40, .key_heads = 8},
      {.b = 1, .sq = 130, .sk = 130, .h = 8, .d = 80, .key_heads = 8},
      {.b = 1, .sq = 130, .sk = 77, .h = 8, .d = 80, .key_heads = 8},
      {.b = 1, .sq = 64, .sk = 64, .h = 8, .d = 160, .key_heads = 8},
      {.b = 1, .sq = 64, .sk = 77, .h = 8, .d = 160, .key_heads = 8}};
  std::ranges::copy(few_keys(), std::back_inserter(all));
  if (lh::test::tested_device() == "cuda") {
    all.push_back({.b = 1, .sq = 260, .sk = 520, .h = 56, .d = 64, .key_heads = 56});
    std::ranges::copy(for_teams(), std::back_inserter(all));
    std::ranges::copy(for_fragments(), std::back_inserter(all));
  }
  return all;
}

std::string name_of(const AttentionCase& a) { return attention_case(a).name; }

class KernelAttention : public testing::TestWithParam<lk_dtype> {
 protected:
  Context context = make_context();
  std::mt19937 random{31};

  Results run(const Memory& m) {
    EXPECT_EQ(run_attention(context.get(), m.params()), LK_OK) << name_of(m.a) << ": " << lk_last_error(context.get());
    return {m.o.load(context.get()), m.lse.load(context.get()), m.dq.load(context.get()), m.dk.load(context.get()),
            m.dv.load(context.get())};
  }

  // What ran and what was passed over, as is told (lora_kernels_trace.h); q begins `offset` numbers after a tensor.
  std::string ran_for(const AttentionCase& a, int64_t offset = 0) {
    const Memory m(context.get(), random, a, GetParam());
    lk_attention_backward_params p = m.params();
    const Tensor wide(Shape{a.b * a.sq * a.h * a.d + offset}, GetParam());
    if (offset > 0) p.q.data = static_cast<char*>(wide.view().data) + offset * lk_dtype_size(GetParam());
    std::string ran;
    const auto note = [](void* user, const lk_call_trace* call) {
      static_cast<std::string*>(user)->append(call->kernels).append("; ").append(call->passed_over).append("\n");
    };
    EXPECT_EQ(lk_set_trace(context.get(), note, &ran), LK_OK);
    EXPECT_EQ(run_attention(context.get(), p), LK_OK) << name_of(a) << ": " << lk_last_error(context.get());
    EXPECT_EQ(lk_set_trace(context.get(), nullptr, nullptr), LK_OK);
    return ran;
  }
};

TEST_P(KernelAttention, BothPassesMatchFloat64) {
  for (const AttentionCase& a : cases()) {
    const Memory m(context.get(), random, a, GetParam());
    const Results got = run(m), want = truth(a, m.q.load(context.get()), m.k.load(context.get()),
                                             m.v.load(context.get()), m.d_o.load(context.get()));
    const int64_t depth = std::max(a.sq * a.group(), a.sk);
    // Rounded: weights, for the gradients also o and ds, and dk and dv of each head before they are added up.
    expect_near(name_of(a) + ", o", got.o, want.o, GetParam(), depth, 2);
    expect_near(name_of(a) + ", dq", got.dq, want.dq, GetParam(), depth, 6);
    expect_near(name_of(a) + ", dk", got.dk, want.dk, GetParam(), depth, 6);
    expect_near(name_of(a) + ", dv", got.dv, want.dv, GetParam(), depth, 6);
    for (size_t i = 0; i < want.lse.size(); ++i) {
      if (std::isinf(want.lse[i])) {
        ASSERT_EQ(got.lse[i], want.lse[i]) << name_of(a) << ", lse " << i;
      } else {
        ASSERT_NEAR(got.lse[i], want.lse[i], 1e-4) << name_of(a) << ", lse " << i;
      }
    }
  }
}

TEST_P(KernelAttention, WhatNothingSeesIsExactlyZero) {
  for (const AttentionCase& a : cases()) {
    const Memory m(context.get(), random, a, GetParam());
    const Results got = run(m);
    const auto expect_zero = [&](const char* what, const Values& x, int64_t row, int64_t width) {
      for (int64_t i = row * width; i < (row + 1) * width; ++i)
        ASSERT_EQ(x[i], 0.0) << name_of(a) << ", " << what << " " << i;
    };
    for (int64_t b = 0; b < a.b; ++b) {
      for (int64_t i = 0; i < a.sq; ++i) {
        bool sees = false;
        for (int64_t j = 0; j < a.sk; ++j) sees = sees || a.seen(b, i, j);
        if (sees) continue;
        expect_zero("o", got.o, b * a.sq + i, a.h * a.d);
        expect_zero("dq", got.dq, b * a.sq + i, a.h * a.d);
      }
      for (int64_t j = 0; j < a.sk; ++j) {
        if (a.seen(b, a.sq - 1, j)) continue;  // the last query sees the most
        expect_zero("dk", got.dk, b * a.sk + j, a.key_heads * a.d);
        expect_zero("dv", got.dv, b * a.sk + j, a.key_heads * a.d);
      }
    }
  }
}

TEST_P(KernelAttention, EqualCallsGiveEqualBits) {
  for (const AttentionCase& a : cases()) {
    const Memory m(context.get(), random, a, GetParam());
    std::vector<std::vector<unsigned char>> first;
    for (int repeat = 0; repeat < 3; ++repeat) {
      run(m);
      size_t n = 0;
      for (const Tensor* t : {&m.o, &m.lse, &m.dq, &m.dk, &m.dv}) {
        if (repeat == 0) first.push_back(t->bytes());
        EXPECT_EQ(t->bytes(), first[n++]) << name_of(a) << ", result " << n;
      }
    }
  }
}

// Of one key the weight is 1, and what flows through the weights is the rounding of float32 alone.
TEST_P(KernelAttention, OneKeyIsCopied) {
  const AttentionCase a{.b = 2, .sq = 70, .sk = 1, .h = 2, .d = 64, .key_heads = 2};
  const Memory m(context.get(), random, a, GetParam());
  const Results got = run(m);
  const Values v = m.v.load(context.get()), d_o = m.d_o.load(context.get());
  Values dv(v.size());
  const int64_t line = a.h * a.d;
  for (int64_t i = 0; i < a.b * a.sq * line; ++i) {
    const int64_t at = i / (a.sq * line) * line + i % line;
    ASSERT_EQ(got.o[i], v[at]) << i;
    dv[at] += d_o[i];
    ASSERT_NEAR(got.dq[i], 0, 1e-4) << i;
  }
  expect_near("dv", got.dv, dv, GetParam(), a.sq, 6);
  for (const double dk : got.dk) ASSERT_NEAR(dk, 0, 1e-3);
}

TEST_P(KernelAttention, HeadsOf128PassInTeamsOnAGpu) {
  if (lh::test::tested_device() != "cuda" || GetParam() == LK_F32) GTEST_SKIP() << "for 16 bits on a GPU";
  const std::string few_rows = ran_for({.b = 2, .sq = 130, .sk = 270, .h = 23, .d = 128, .key_heads = 23});
  if (few_rows.find("ByList") == std::string::npos) GTEST_SKIP() << "capability is not 9.0: " << few_rows;
  int64_t in_teams = 0;
  for (const AttentionCase& a : for_teams()) in_teams += ran_for(a).find("InTeams") != std::string::npos ? 1 : 0;
  if (in_teams == 0) GTEST_SKIP() << "not 132 processors";
  EXPECT_EQ(in_teams, std::ssize(for_teams()));
}

TEST_P(KernelAttention, WhatCudnnDoesNotDoHasMatrixInstructionsOnAGpu) {
  if (lh::test::tested_device() != "cuda" || GetParam() == LK_F32) GTEST_SKIP() << "for 16 bits on a GPU";
  if (ran_for(for_fragments().front()).find("no such instructions") != std::string::npos)
    GTEST_SKIP() << "bf16 from capability 8.0 on";
  for (const AttentionCase& a : for_fragments())
    EXPECT_THAT(ran_for(a),
                AllOf(HasSubstr("attention_fragments_kernel"), HasSubstr("attention_fragments_backward_kernel")));
  const AttentionCase taken{.b = 2, .sq = 65, .sk = 130, .h = 4, .d = 64, .key_heads = 2, .soft_cap = 1.5};
  const auto expect_passed_over = [&](const AttentionCase& a, int64_t offset, const char* why) {
    EXPECT_THAT(ran_for(a, offset), AllOf(Not(HasSubstr("attention_fragments_")), HasSubstr(why)));
  };
  AttentionCase other = taken;
  other.d = 12;
  expect_passed_over(other, 0, "own kernels with matrix instructions: width of heads");
  other.d = 264;
  expect_passed_over(other, 0, "own kernels with matrix instructions: width of heads");
  expect_passed_over(taken, 1, "own kernels with matrix instructions: not aligned to 16 bytes");
}

TEST_P(KernelAttention, FewKeysHaveKernelsOnAGpu) {
  if (lh::test::tested_device() != "cuda" || GetParam() == LK_F32) GTEST_SKIP() << "for 16 bits on a GPU";
  if (ran_for(few_keys().front()).find("few keys: capability") != std::string::npos)
    GTEST_SKIP() << "from capability 8.0 on";
  for (const AttentionCase& a : few_keys())
    EXPECT_THAT(ran_for(a), AllOf(HasSubstr(a.lengths || a.mask ? "few_keys_kernel" : "every key is seen"),
                                  HasSubstr("few_keys_backward_kernel")));
  const AttentionCase taken{.b = 1, .sq = 130, .sk = 128, .h = 2, .d = 64, .key_heads = 2};
  const auto expect_passed_over = [&](const AttentionCase& a, int64_t offset, const char* why) {
    EXPECT_THAT(ran_for(a, offset), AllOf(Not(HasSubstr("few_keys_")), HasSubstr(why)));
  };
  AttentionCase other = taken;
  other.sk = 129;
  expect_passed_over(other, 0, "own kernel for few keys: more than 128 keys");
  other = taken, other.sq = 127;
  expect_passed_over(other, 0, "own kernel for few keys: fewer queries than keys");
  other = taken, other.d = 128;
  expect_passed_over(other, 0, "own kernel for few keys: width of heads");
  other = taken, other.key_heads = 1;
  expect_passed_over(other, 0, "own kernel for few keys: grouped heads");
  other = taken, other.sk = other.sq = 128, other.causal = true;
  expect_passed_over(other, 0, "own kernel for few keys: bias, soft_cap or causal");
  expect_passed_over(taken, 1, "own kernel for few keys: not aligned to 16 bytes");
}

INSTANTIATE_TEST_SUITE_P(Types, KernelAttention, testing::Values(LK_F32, LK_F16, LK_BF16),
                         [](const auto& info) { return std::string(lk_dtype_name(info.param)); });

TEST_F(Kernels, AttentionRefusesWrongArguments) {
  const Memory m(context.get(), random,
                 {.b = 2, .sq = 5, .sk = 7, .h = 4, .d = 8, .key_heads = 2, .lengths = true, .mask = true}, LK_F32);
  const auto refused = [&](const lk_attention_backward_params& p, const std::string& text) {
    const lk_attention_params forward{.q = p.q,
                                      .k = p.k,
                                      .v = p.v,
                                      .bias = p.bias,
                                      .key_lengths = p.key_lengths,
                                      .key_mask = p.key_mask,
                                      .scale = p.scale,
                                      .soft_cap = p.soft_cap,
                                      .causal = p.causal,
                                      .o = p.o,
                                      .lse = p.lse};
    EXPECT_EQ(lk_attention(context.get(), &forward), LK_E_INVALID) << text;
    EXPECT_THAT(lk_last_error(context.get()), HasSubstr("attention: " + text));
    EXPECT_EQ(lk_attention_backward(context.get(), &p), LK_E_INVALID) << text;
    EXPECT_THAT(lk_last_error(context.get()), HasSubstr("attention_backward: " + text));
  };
  const std::vector<unsigned char> before = m.o.bytes();
  const Tensor three({2, 7, 3, 8}, LK_F32), eight({2, 7, 8, 8}, LK_F32), one({2, 7, 1, 8}, LK_F32);
  auto p = m.params();
  p.k = p.v = three.view();
  refused(p, "k: expected a number of heads that divides the 4 of q, found 3");
  p.k = p.v = eight.view();
  refused(p, "k: expected a number of heads that divides the 4 of q, found 8");
  p = m.params();
  p.v = one.view();
  refused(p, "v: expected shape [2, 7, 2, 8], found [2, 7, 1, 8]");
  p = m.params();
  p.key_mask.dtype = LK_F32;
  refused(p, "key_mask: expected");
  p = m.params();
  p.key_mask.dims[1] = 6;
  refused(p, "key_mask: expected shape [2, 7], found [2, 6]");
  p = m.params();
  p.key_mask.rank = 1;
  refused(p, "key_mask: expected shape [2, 7]");
  p = m.params();
  p.soft_cap = -1;
  refused(p, "soft_cap: expected 0 (none) or a value above 0");
  p.soft_cap = std::numeric_limits<float>::quiet_NaN();
  refused(p, "soft_cap: expected a finite value");
  p.soft_cap = std::numeric_limits<float>::infinity();
  refused(p, "soft_cap: expected a finite value");
  p = m.params();
  p.dq = p.q;
  p.dq.data = p.key_mask.data;
  EXPECT_EQ(lk_attention_backward(context.get(), &p), LK_E_INVALID);
  EXPECT_THAT(lk_last_error(context.get()), HasSubstr("dq: expected no overlap with "));
  p = m.params();
  p.dk = one.view();
  EXPECT_EQ(lk_attention_backward(context.get(), &p), LK_E_INVALID);
  EXPECT_THAT(lk_last_error(context.get()), HasSubstr("dk: expected shape [2, 7, 2, 8]"));
  EXPECT_EQ(before, m.o.bytes());
}

}  // namespace

}  // namespace lk_test::kernels_attention_test
