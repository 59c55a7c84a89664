// The crash test: a whole tiny run meets a fault in any of its system calls or allocations, is resumed, and must leave
// the very files that an undisturbed run leaves.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "support/fault_server.h"

namespace lh::test {

// Name -> bytes of every file below a folder. Left out is what belongs to a process: the lock and the socket. Event
// files are one entry, the set of their events without the wall-clock time that each begins with; temporary files have
// no number of a process in their names.
using Tree = std::map<std::string, std::string>;
Tree tree_of(const std::filesystem::path& folder);
std::string difference(const Tree& got, const Tree& want);  // empty: they are equal

// A run of four steps with accumulation, two sizes of images, saves, samples, an average of the weights and a change of
// the optimizer after the third.
struct TortureRun {
  std::string first, then;  // optimizers
  enum class Begin { empty, cached, resumed } begin = Begin::cached;
  // The weights of every block in host memory, and all activations that can be made again are.
  bool little_memory = false;
  std::string text() const;
};

struct TortureFailure {
  std::string run, fault, what;
};

struct TortureTally {
  std::map<std::string, int64_t> tried;     // faults by kind
  std::map<std::string, int64_t> by_call;   // by the system call that they hit
  std::map<std::string, int64_t> outcomes;  // of the process that met the fault
  int64_t resumed = 0;                      // runs that went on after it; others left a tree that went on before
  std::vector<TortureFailure> failures;
  int64_t total() const;
};

class Torture {
 public:
  // folder: empty, and this object's. Everything that is drawn follows from the seed.
  Torture(std::filesystem::path folder, uint64_t seed);

  // Every fault that the run can meet: each of its calls with each action that suits it; `allocations` of them are of
  // memory, spread over the run.
  std::vector<Fault> faults_of(const TortureRun& run, int64_t allocations);
  // The undisturbed run is done first, once.
  void meet(const TortureRun& run, const Fault& fault);
  const TortureTally& tally() const { return tally_; }
  // How long a run may take before it counts as hung.
  double time_limit = 60;
  // A tree that another fault left as well, and that was resumed from with success, is resumed from again.
  bool resume_each = false;

 private:
  // Files below the work folder, by name, with their bytes; folders end with a slash.
  using Snapshot = std::map<std::string, std::string>;
  struct Reference;
  Reference& reference(const TortureRun& run);
  void write_inputs();
  void write_config(const TortureRun& run);
  Snapshot snapshot() const;
  void restore(const Snapshot& files);
  FaultedRun train(const Fault& fault, bool resume);
  Tree undisturbed(const TortureRun& run, bool resume, Reference& reference);
  // What is wrong with the run, the fault and what came after it; empty: nothing.
  std::string judge(const Fault& fault, const FaultedRun& faulted, Reference& reference);

  std::filesystem::path work_;
  std::mt19937_64 random_;
  std::unique_ptr<FaultServer> server_;
  std::map<std::string, std::shared_ptr<Reference>> references_;
  Snapshot cached_;      // what a run finds that is not the first of its folder
  std::string written_;  // the run whose configuration lies there
  TortureTally tally_;
};

}  // namespace lh::test
