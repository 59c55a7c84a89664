// Runs, faults and what they leave.
#include "support/torture.h"

#include <fmt/core.h>
#include <signal.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <set>
#include <stdexcept>
#include <string_view>

#include "core/hash.h"
#include "data/image.h"
#include "support/image_files.h"
#include "support/io_files.h"
#include "support/paths.h"
#include "support/z_image_shapes.h"

namespace lh::test {
namespace {

namespace fs = std::filesystem;

constexpr const char* config_text = R"(name: toy
training_folder: FOLDER/runs
device: cpu
model:
  name_or_path: FOLDER/in/model.safetensors
  variant: turbo
  tokenizer_path: SOURCE/tests/data/qwen_small
network:
  linear: 1
  network_kwargs: {only_if_contains: [layers.0.attention]}
datasets:
  - folder_path: FOLDER/in/photos
    resolution: 32
train:
  batch_size: 1
  gradient_accumulation: 2
  steps: 4
  lr: 1e-3
  dtype: fp32
  ema_config: {use_ema: true, ema_decay: 0.5}
  phases:
    - {until: 3, optimizer: FIRST}
    - {optimizer: THEN}
sample:
  prompts: [a photo]
  sample_every: 3
  sample_steps: 1
  width: 32
  height: 32
save:
  save_every: 1
  max_step_saves_to_keep: 1
)";
constexpr const char* little_memory_text = "memory: {stream: 100%, recompute: 100%}\n";

// The events of a file of TensorBoard's, each without the time that it begins with (a key of one byte and a float64);
// a torn one ends the list.
void add_events(const std::string& bytes, std::set<std::string>& events) {
  constexpr size_t head = 8 + 4, tail = 4, time = 1 + 8;  // of a frame: length and its checksum; a checksum
  for (size_t at = 0; at + head <= bytes.size();) {
    uint64_t length = 0;
    std::memcpy(&length, bytes.data() + at, sizeof length);
    if (length < time || length > bytes.size() - at - head || bytes.size() - at - head - length < tail) return;
    events.insert(bytes.substr(at + head + time, length - time));
    at += head + length + tail;
  }
}

const char* kind_of(const Fault& fault) {
  switch (fault.action) {
    case fault_kill: return "kill";
    case fault_tear: return "kill within a write";
    case fault_fail: return fault.error == EIO ? "EIO" : fault.error == ENOSPC ? "ENOSPC" : "EINTR";
    case fault_stuck: return fault.error == EIO ? "EIO from then on" : "ENOSPC from then on";
    case fault_short: return "short count";
    case fault_alloc: return "allocation";
    case fault_alloc_stuck: return "allocations from then on";
    default: return "planted";
  }
}

std::string last_lines(const std::string& output) {
  return output.size() > 600 ? "..." + output.substr(output.size() - 600) : output;
}

}  // namespace

Tree tree_of(const fs::path& folder) {
  Tree tree;
  std::set<std::string> events;
  std::error_code none;
  for (fs::recursive_directory_iterator entry(folder, none), end; !none && entry != end; entry.increment(none)) {
    std::string name = fs::relative(entry->path(), folder).string();
    const std::string file = entry->path().filename().string();
    if (file.find(".tfevents.") != file.npos)
      add_events(get(entry->path()), events);
    else if (file.starts_with(".lora-host-") && file.ends_with(".tmp"))
      tree[fmt::format("{} (temporary)", entry->path().parent_path().string())] += get(entry->path()) + "|";
    else if (file.ends_with(".seen"))
      continue;  // what files are known by: their numbers and times, which are another run's own
    else if (entry->is_regular_file(none) && file != ".lock")
      tree[name] = get(entry->path());
    else if (entry->is_directory(none))
      tree[name + "/"];
    else if (file != ".lock" && file != "ctl.sock")
      tree[name + " (no file)"];
  }
  std::string all;
  for (const std::string& event : events) all += event + "|";
  tree["events"] = all;
  return tree;
}

std::string difference(const Tree& got, const Tree& want) {
  std::string text;
  for (const auto& [name, bytes] : want) {
    const auto it = got.find(name);
    if (it == got.end())
      text += fmt::format(" {} is missing;", name);
    else if (it->second != bytes)
      text += fmt::format(" {} differs ({} bytes, expected {});", name, it->second.size(), bytes.size());
  }
  for (const auto& [name, bytes] : got)
    if (!want.contains(name)) text += fmt::format(" {} is left over;", name);
  return text;
}

std::string TortureRun::text() const {
  const char* words[] = {"empty cache", "full cache", "resumed"};
  return fmt::format("{}, then {}, {}{}", first, then, words[static_cast<int>(begin)],
                     little_memory ? ", in little memory" : "");
}

int64_t TortureTally::total() const {
  int64_t sum = 0;
  for (const auto& [kind, count] : tried) sum += count;
  return sum;
}

struct Torture::Reference {
  Snapshot begin;
  Tree end;
  std::vector<uint8_t> calls;
  int64_t allocations = 0;
  std::set<std::string> good;  // digests of trees that were resumed from, and came to the end
};

Torture::Torture(fs::path folder, uint64_t seed) : work_(std::move(folder)), random_(seed) {
  write_inputs();
  server_ =
      std::make_unique<FaultServer>(work_, std::vector<std::string>{"XDG_CACHE_HOME=" + (work_ / "home").string()});
}

void Torture::write_inputs() {
  fs::create_directories(work_ / "in" / "photos");
  write_small_z_image(work_ / "in" / "model.safetensors", {1, 1, 128, 64, 96});
  for (const auto& [name, width, height] : {std::tuple{"a", 64, 64}, {"b", 128, 64}, {"c", 64, 64}}) {
    write_png(work_ / "in" / "photos" / fmt::format("{}.png", name), test_picture(width, height));
    put(work_ / "in" / "photos" / fmt::format("{}.txt", name), fmt::format("a photo of {}", name));
  }
}

void Torture::write_config(const TortureRun& run) {
  const std::string now = fmt::format("{} {} {}", run.first, run.then, run.little_memory);
  if (written_ == now) return;
  written_ = now;
  std::string text = replaced(replaced(config_text, "FOLDER", work_.string()), "SOURCE", source_dir());
  if (run.little_memory) text += little_memory_text;
  put(work_ / "in" / "train.yaml", replaced(replaced(text, "FIRST", run.first), "THEN", run.then));
}

Torture::Snapshot Torture::snapshot() const {
  Snapshot files;
  for (const char* part : {"runs", "home"}) {
    std::error_code none;
    for (fs::recursive_directory_iterator entry(work_ / part, none), end; !none && entry != end;
         entry.increment(none)) {
      const std::string name = fs::relative(entry->path(), work_).string();
      if (entry->is_directory()) files[name + "/"];
      if (entry->is_regular_file()) files[name] = get(entry->path());
    }
  }
  return files;
}

void Torture::restore(const Snapshot& files) {
  for (const char* part : {"runs", "home"}) fs::remove_all(work_ / part);
  for (const auto& [name, bytes] : files) {
    if (name.back() == '/')
      fs::create_directories(work_ / name);
    else
      put(work_ / name, bytes);
  }
}

FaultedRun Torture::train(const Fault& fault, bool resume) {
  std::vector<std::string> words{"train", "--config", (work_ / "in" / "train.yaml").string()};
  if (resume) words.emplace_back("--resume");
  return server_->run(words, fault, time_limit);
}

Tree Torture::undisturbed(const TortureRun& run, bool resume, Reference& reference) {
  const FaultedRun whole = train({}, resume);
  if (whole.code != 0)
    throw std::runtime_error(
        fmt::format("{}: the undisturbed run ended with {}:\n{}", run.text(), whole.code, whole.output));
  reference.calls = whole.calls;
  reference.allocations = whole.allocations;
  return tree_of(work_ / "runs");
}

Torture::Reference& Torture::reference(const TortureRun& run) {
  write_config(run);
  std::shared_ptr<Reference>& known = references_[run.text()];
  if (known) return *known;
  auto made = std::make_shared<Reference>();
  if (run.begin == TortureRun::Begin::empty) {
    restore({});
    made->end = undisturbed(run, false, *made);
  } else {
    if (cached_.empty()) {
      restore({});
      Reference first;
      undisturbed(run, false, first);
      fs::remove_all(work_ / "runs" / "toy");
      cached_ = snapshot();
    }
    restore(cached_);
    made->begin = cached_;
    made->end = undisturbed(run, false, *made);
  }
  if (run.begin == TortureRun::Begin::resumed) {
    // Killed where two states are there and a step after them is lost.
    restore(cached_);
    int64_t renames = 0, at = 0;
    const auto count = std::count(made->calls.begin(), made->calls.end(), fault_on_rename);
    while (renames < count * 3 / 4) renames += made->calls[static_cast<size_t>(at++)] == fault_on_rename;
    train({.action = fault_kill, .nth = at}, false);
    made->begin = snapshot();
    const Tree end = undisturbed(run, true, *made);
    if (const std::string what = difference(end, made->end); !what.empty())
      throw std::runtime_error(fmt::format("{}: a killed run is not like an undisturbed one:{}", run.text(), what));
  }
  known = made;
  return *known;
}

std::vector<Fault> Torture::faults_of(const TortureRun& run, int64_t allocations) {
  const Reference& r = reference(run);
  std::vector<Fault> faults;
  for (int64_t n = 0; n < static_cast<int64_t>(r.calls.size()); ++n) {
    const uint8_t call = r.calls[static_cast<size_t>(n)];
    const int classes = fault_call_class(call);
    faults.push_back({fault_kill, 0, n});
    for (const int error : {EIO, EINTR}) faults.push_back({fault_fail, error, n});
    if ((classes & FAULT_SPACE) != 0)
      for (const int32_t action : {fault_fail, fault_stuck}) faults.push_back({action, ENOSPC, n});
    if ((classes & FAULT_DATA) != 0) faults.push_back({fault_short, 0, n});
    if (classes != FAULT_LOOK) faults.push_back({fault_stuck, EIO, n});
    if (call == fault_on_write || call == fault_on_pwrite) faults.push_back({fault_tear, 0, n});
  }
  std::uniform_int_distribution<int64_t> any(0, std::max<int64_t>(r.allocations - 1, 0));
  for (int64_t i = 0; i < allocations; ++i)
    faults.push_back({i % 2 == 0 ? fault_alloc : fault_alloc_stuck, 0, any(random_)});
  return faults;
}

std::string Torture::judge(const Fault& fault, const FaultedRun& faulted, Reference& reference) {
  static const std::set<int> told{0, 2, 3, 4, 5, 6, 9, 75};
  const bool killed = faulted.signal == SIGKILL && (fault.action == fault_kill || fault.action == fault_tear);
  // glibc ends a process itself that has no memory for a library's thread-local data; what it left must still go on.
  const bool by_libc =
      faulted.code == 127 && faulted.output.find("memory for thread-local data") != faulted.output.npos;
  std::string wrong;
  if (faulted.hung)
    wrong = fmt::format("hung for {} seconds", time_limit);
  else if (faulted.signal != 0 && !killed)
    wrong = fmt::format("crashed with signal {}", faulted.signal);
  else if (!killed && !by_libc && !told.contains(faulted.code))
    wrong = fmt::format("ended with {}", faulted.code);
  if (!wrong.empty()) return fmt::format("{}\n{}", wrong, last_lines(faulted.output));

  const Tree left = tree_of(work_ / "runs");
  // An old save that stays is warned of, and goes with the next run.
  const bool warned = faulted.output.find("could not be removed") != faulted.output.npos;
  if (faulted.code == 0) {
    const std::string what = difference(left, reference.end);
    if (what.empty()) return {};
    if (!warned) return fmt::format("ended with 0, but:{}\n{}", what, last_lines(faulted.output));
  }
  if (!killed && !by_libc && faulted.code != 0 && faulted.output.find("error: ") == faulted.output.npos &&
      faulted.code != 75)
    return fmt::format("ended with {} without an error\n{}", faulted.code, last_lines(faulted.output));
  Sha256 digest;
  for (const auto& [name, bytes] : left) digest.update(fmt::format("{} {}\n{}", name, bytes.size(), bytes));
  const std::string from = digest.hex();
  if (reference.good.contains(from) && !resume_each) return {};
  ++tally_.resumed;
  const FaultedRun after = train({}, true);
  if (after.hung || after.code != 0)
    return fmt::format("resuming ended with {}{}\n{}\nafter\n{}", after.code, after.hung ? " (hung)" : "",
                       last_lines(after.output), last_lines(faulted.output));
  if (const std::string what = difference(tree_of(work_ / "runs"), reference.end); !what.empty())
    return fmt::format("resumed, but:{}\n{}\nafter\n{}", what, last_lines(after.output), last_lines(faulted.output));
  reference.good.insert(from);
  return {};
}

void Torture::meet(const TortureRun& run, const Fault& fault) {
  Reference& r = reference(run);
  restore(r.begin);
  const FaultedRun faulted = train(fault, run.begin == TortureRun::Begin::resumed);
  if (!faulted.fired) {
    ++tally_.outcomes["fault not reached"];
    return;
  }
  ++tally_.tried[kind_of(fault)];
  ++tally_.by_call[faulted.place.starts_with("an allocation") ? "allocation"
                                                              : faulted.place.substr(0, faulted.place.find(' '))];
  ++tally_.outcomes[faulted.signal != 0 ? fmt::format("signal {}", faulted.signal)
                                        : fmt::format("exit {}", faulted.code)];
  if (const std::string what = judge(fault, faulted, r); !what.empty())
    tally_.failures.push_back({run.text(), fmt::format("{}: {}", fault.text(), faulted.place), what});
}

}  // namespace lh::test
