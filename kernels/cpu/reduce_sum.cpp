// y = scale * sum of x over the axes where y has 1, in double.
//
// Neighbouring axes that are all kept or all summed are joined; each summed group is then one pass
// [outer, reduced, inner] -> [outer, inner], from the last group to the first, so every pass reads memory in order.
#include <array>
#include <vector>

#include "cpu/broadcast.h"
#include "cpu/column_sums.h"
#include "cpu/convert.h"
#include "integers.h"

namespace lk::cpu {

namespace {

struct Group {
  int64_t size;
  bool summed;
};

std::vector<Group> joined_groups(const lk_reduce_sum_params& p) {
  std::vector<Group> groups;
  for (int32_t i = 0; i < p.x.rank; ++i) {
    if (p.x.dims[i] == 1) continue;
    const bool summed = p.y.dims[i] == 1;
    if (!groups.empty() && groups.back().summed == summed) {
      groups.back().size *= p.x.dims[i];
    } else {
      groups.push_back({p.x.dims[i], summed});
    }
  }
  return groups;
}

template <class T>
void sum_row(const T* x, int64_t n, double* out) {
  double sum = 0;
#pragma omp simd reduction(+ : sum)
  for (int64_t i = 0; i < n; ++i) sum += static_cast<double>(x[i]);
  *out = sum;
}

template <class T>
void add_row(const T* x, int64_t n, double* out) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) out[i] += static_cast<double>(x[i]);
}

constexpr int64_t run = 4096;  // elements of a long row that are added up before their sum joins the others'

// The order of the sums is that of a row whose runs are added by several threads.
template <class T>
void sum_in_runs(const T* x, int64_t n, double* out) {
  std::array<double, 64> partial;
  const int64_t runs = (n + run - 1) / run;
  if (runs <= 1) return sum_row(x, n, out);
  const auto sum_run = [&](int64_t r, double* to) { sum_row(x + r * run, std::min(run, n - r * run), to); };
  std::vector<double> many;
  double* sums = partial.data();
  if (runs > static_cast<int64_t>(partial.size())) {
    many.resize(static_cast<size_t>(runs));
    sums = many.data();
  }
  for (int64_t r = 0; r < runs; ++r) sum_run(r, sums + r);
  sum_row(sums, runs, out);
}

// x [outer, reduced, inner] -> out [outer, inner]. Which way it goes depends on the number of threads, the result does
// not.
template <class T>
void pass(Cpu& cpu, const T* x, int64_t outer, int64_t reduced, int64_t inner, double* out) {
  if (inner == 1 && outer < cpu.threads()) {  // a few long rows: runs in parallel, then the runs' sums
    const int64_t runs = (reduced + run - 1) / run;
    const Scratch<double> partial(cpu, runs);
    for (int64_t i = 0; i < outer; ++i) {
      parallel_for(cpu, runs, run, [&](int64_t begin, int64_t end) {
        for (int64_t r = begin; r < end; ++r) {
          sum_row(x + i * reduced + r * run, std::min(run, reduced - r * run), partial.data() + r);
        }
      });
      sum_row(partial.data(), runs, out + i);
    }
  } else if (inner == 1) {
    parallel_for(cpu, outer, reduced, [=](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) sum_in_runs(x + i * reduced, reduced, out + i);
    });
  } else if (outer < cpu.threads()) {
    for (int64_t i = 0; i < outer; ++i) {
      const T* const block = x + i * reduced * inner;
      column_sums(cpu, reduced, inner, out + i * inner,
                  [=](int64_t row, double* own) { add_row(block + row * inner, inner, own); });
    }
  } else {
    const int64_t parts = column_sum_parts(reduced, inner);
    parallel_for(cpu, outer, reduced * inner, [=](int64_t begin, int64_t end) {
      std::vector<double> partial(static_cast<size_t>(inner));
      for (int64_t i = begin; i < end; ++i) {
        std::fill_n(out + i * inner, inner, 0.0);
        for (int64_t part = 0; part < parts; ++part) {
          std::ranges::fill(partial, 0.0);
          for (int64_t r = reduced * part / parts; r < reduced * (part + 1) / parts; ++r)
            add_row(x + (i * reduced + r) * inner, inner, partial.data());
          add_row(partial.data(), inner, out + i * inner);
        }
      }
    });
  }
}

// Exact modulo 2^32, whatever the order.
void sum_integers(const lk_reduce_sum_params& p) {
  const Walk<1> walk(p.x, {&p.y});
  const auto* const x = static_cast<const int32_t*>(p.x.data);
  auto* const y = static_cast<int32_t*>(p.y.data);
  std::fill_n(y, numel(p.y), 0);
  const int64_t inner = walk.inner(), step = walk.inner_stride(0);
  for (int64_t row = 0; row < walk.rows(); ++row) {
    int32_t* const to = y + walk.offset(0, row);
    for (int64_t i = 0; i < inner; ++i) to[i * step] = integer_binary(LK_ADD, to[i * step], x[row * inner + i]);
  }
}

}  // namespace

void reduce_sum(Cpu& cpu, const lk_reduce_sum_params& p) {
  if (p.x.dtype == LK_I32) return sum_integers(p);
  const FloatIn x(cpu, p.x);
  const FloatOut y(cpu, p.y);
  const std::vector<Group> groups = joined_groups(p);
  const double scale = static_cast<double>(p.scale);
  int64_t outer = numel(p.x), inner = 1;
  Scratch<double> held;
  const double* sums = nullptr;  // nullptr while x itself is the operand
  for (auto group = groups.rbegin(); group != groups.rend(); ++group) {
    outer /= group->size;
    if (!group->summed) {
      inner *= group->size;
      continue;
    }
    Scratch<double> result(cpu, outer * inner);
    if (sums == nullptr) {
      pass(cpu, x.data(), outer, group->size, inner, result.data());
    } else {
      pass(cpu, sums, outer, group->size, inner, result.data());
    }
    held.swap(result);  // what was the operand goes back to the pool
    sums = held.data();
  }
  for (int64_t i = 0; i < numel(p.y); ++i) {
    y[i] = static_cast<float>(scale * (sums != nullptr ? sums[i] : static_cast<double>(x[i])));
  }
}

}  // namespace lk::cpu
