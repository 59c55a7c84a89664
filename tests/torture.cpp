// torture [--faults N] [--seed S] [--jobs J] [--minutes M]: the crash test in full (scripts/torture.sh).
//
// Faults are drawn from all that the runs can meet: the calls of each optimizer's run, from the beginning and resumed,
// with each action that suits them. The exit status is 1 where one of them did not end as it must.
#include "support/torture.h"

#include <fmt/core.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string_view>

#include "support/device.h"
#include "support/io_files.h"
#include "support/model_files.h"

const std::string& lh::test::tested_device() {
  static const std::string cpu = "cpu";
  return cpu;
}

namespace {

using namespace lh::test;
namespace fs = std::filesystem;

struct Task {
  TortureRun run;
  Fault fault;
};

// Each optimizer of the shipped plugins once as the first and once as the second; one run begins with an empty cache,
// two keep weights in host memory and make activations again.
std::vector<TortureRun> all_runs() {
  std::vector<std::string> ids;
  for (const auto& offered : built_plugins().plugins())
    for (const lh_optimizer* rule : offered->optimizers()) ids.emplace_back(rule->id);
  std::vector<TortureRun> runs{{ids[0], ids[1 % ids.size()], TortureRun::Begin::empty}};
  for (size_t i = 0; i < ids.size(); ++i)
    for (const auto begin : {TortureRun::Begin::cached, TortureRun::Begin::resumed})
      runs.push_back({ids[i], ids[(i + 1) % ids.size()], begin});
  for (const auto begin : {TortureRun::Begin::cached, TortureRun::Begin::resumed})
    runs.push_back({ids[0], ids[1 % ids.size()], begin, true});
  return runs;
}

// What a job found, as lines for the one that adds up.
void report(FILE* out, const TortureTally& tally) {
  for (const auto& [kind, count] : tally.tried) fmt::print(out, "tried\t{}\t{}\n", kind, count);
  for (const auto& [call, count] : tally.by_call) fmt::print(out, "call\t{}\t{}\n", call, count);
  for (const auto& [outcome, count] : tally.outcomes) fmt::print(out, "outcome\t{}\t{}\n", outcome, count);
  fmt::print(out, "resumed\truns\t{}\n", tally.resumed);
  for (const TortureFailure& f : tally.failures) {
    std::string text = fmt::format("{}; {}: {}", f.run, f.fault, f.what);
    std::ranges::replace(text, '\n', '\v');
    fmt::print(out, "failure\t{}\t1\n", text);
  }
}

using Sums = std::map<std::string, std::map<std::string, int64_t>>;

void add(Sums& sums, const std::string& text) {
  for (size_t at = 0; at < text.size();) {
    const size_t end = text.find('\n', at), first = text.find('\t', at), second = text.rfind('\t', end);
    sums[text.substr(at, first - at)][text.substr(first + 1, second - first - 1)] +=
        std::stoll(text.substr(second + 1));
    at = end + 1;
  }
}

std::string line(const std::map<std::string, int64_t>& counts) {
  std::string text;
  for (const auto& [name, count] : counts) text += fmt::format("{}{} {}", text.empty() ? "" : ", ", name, count);
  return text;
}

int64_t number(const char* text) {
  char* end = nullptr;
  const int64_t value = std::strtoll(text, &end, 10);
  if (*end != 0 || value < 0) {
    fmt::print(stderr, "torture: expected a number, found {}\n", text);
    std::exit(2);
  }
  return value;
}

}  // namespace

int main(int argc, char** argv) {
  int64_t most = 10000, seed = 1, jobs = 1, minutes = 24 * 60;
  for (int i = 1; i < argc; i += 2) {
    const std::string_view flag = argv[i];
    int64_t* value = flag == "--faults"    ? &most
                     : flag == "--seed"    ? &seed
                     : flag == "--jobs"    ? &jobs
                     : flag == "--minutes" ? &minutes
                                           : nullptr;
    if (value == nullptr || i + 1 == argc) {
      fmt::print(stderr, "usage: torture [--faults N] [--seed S] [--jobs J] [--minutes M]\n");
      return 2;
    }
    *value = number(argv[i + 1]);
  }
  const TempDir folder;
  const auto start = std::chrono::steady_clock::now();
  std::vector<pid_t> children;
  for (int64_t job = 0; job < std::max<int64_t>(jobs, 1); ++job) {
    const pid_t child = ::fork();
    if (child != 0) {
      children.push_back(child);
      continue;
    }
    try {
      Torture torture(folder / fmt::format("job{}", job), static_cast<uint64_t>(seed));
      std::vector<Task> tasks;
      for (const TortureRun& run : all_runs())
        for (const Fault& fault : torture.faults_of(run, 600)) tasks.push_back({run, fault});
      if (job == 0) fmt::print("{} faults to draw from, of {} runs\n", tasks.size(), all_runs().size());
      std::fflush(stdout);
      std::mt19937_64 random(static_cast<uint64_t>(seed));
      std::ranges::shuffle(tasks, random);
      tasks.resize(std::min(tasks.size(), static_cast<size_t>(most)));
      for (size_t i = static_cast<size_t>(job); i < tasks.size();
           i += static_cast<size_t>(std::max<int64_t>(jobs, 1))) {
        if (std::chrono::steady_clock::now() - start > std::chrono::minutes(minutes)) break;
        const size_t before = torture.tally().failures.size();
        torture.meet(tasks[i].run, tasks[i].fault);
        if (torture.tally().failures.size() > before) {
          const TortureFailure& f = torture.tally().failures.back();
          fmt::print("FAILED {}; {}: {}\n", f.run, f.fault, f.what);
          std::fflush(stdout);
        }
      }
      FILE* out = std::fopen((folder / fmt::format("result{}", job)).c_str(), "w");
      report(out, torture.tally());
      std::fclose(out);
      std::fflush(stdout);
      ::_exit(0);
    } catch (const std::exception& error) {
      fmt::print(stderr, "torture: {}\n", error.what());
      ::_exit(1);
    }
  }
  Sums sums;
  bool whole = true;
  for (size_t i = 0; i < children.size(); ++i) {
    int status = 0;
    ::waitpid(children[i], &status, 0);
    whole = whole && status == 0;
    add(sums, get(folder / fmt::format("result{}", i)));
  }
  int64_t total = 0;
  for (const auto& [kind, count] : sums["tried"]) total += count;
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  fmt::print("faults   {} in {:.0f} s, seed {}, {} jobs: {}\n", total, seconds, seed, jobs, line(sums["tried"]));
  fmt::print("calls    {}\n", line(sums["call"]));
  fmt::print("outcomes {}; {} resumed\n", line(sums["outcome"]), sums["resumed"]["runs"]);
  fmt::print("{} faults tried, {} did not end as they must\n", total, sums["failure"].size());
  return whole && total > 0 && sums["failure"].empty() ? 0 : 1;
}
