// The frozen weights of one or more graphs: each checkpoint tensor once, in one allocation on the device, or in one of
// host memory where the graph fetches them from there.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "graph/graph.h"
#include "io/checkpoint.h"
#include "run/device.h"
#include "run/program.h"
#include "run/shared_weights.h"

namespace lh {

// Parameters that the graph takes from the checkpoint (trained ones are not among them). The factors of a weight
// (ValueInfo::scale) go with it everywhere here.
std::vector<std::string> weight_names(const Graph& graph, const Checkpoint& checkpoint);
// On the device; those that the graph fetches (passes/stream.h) are in host memory instead.
int64_t weight_bytes(const Graph& graph, const std::vector<std::string>& names);
int64_t streamed_bytes(const Graph& graph, const std::vector<std::string>& names);
// What a process keeps on its device of those that the graph fetches, where each has a part.
int64_t kept_bytes(const Graph& graph, const std::vector<std::string>& names, const WeightShare& share);

class Weights {
 public:
  enum class Source { file, random };
  // Brings every checkpoint parameter of `graph` to the device, one tensor at a time: from the file, or made there by
  // the law of synthetic weights, for benches. share: of several processes, the part that this one keeps of what the
  // graph fetches, or offers; on its device then, and not in host memory.
  Weights(Device& device, const Checkpoint& checkpoint, const Graph& graph, Source source = Source::file,
          const WeightShare& share = {});
  // Reads some of them anew, into their places. `graph` is the one that they were read for.
  void read_again(Device& device, const Checkpoint& checkpoint, const Graph& graph,
                  const std::vector<std::string>& names);
  // A weight and its factors as `graph`, for which they were read, has them, where this process has all of it.
  struct Whole {
    const std::byte *data = nullptr, *scale = nullptr;
    bool on_host = false;
  };
  std::optional<Whole> whole(const Graph& graph, const std::string& name) const;
  // Binds the parameters of another graph over the same weights.
  Externals bind(const Graph& graph) const;
  int64_t bytes() const { return memory_.bytes(); }
  const std::byte* memory() const { return memory_.data(); }  // all that is on the device

 private:
  // Where a weight is: on the device, or in host memory that copies to the device run from, or a part of it; or at this
  // offset of the memory of another process.
  enum class Kept { whole, on_host, part, elsewhere };
  struct Place {
    Kept kept = Kept::whole;
    int64_t offset = 0;
  };
  int64_t scale_offset(const Graph& graph, const std::string& name) const;
  void keep_part(Device& device, const Graph& graph, const std::string& name, const std::byte* whole, bool on_device);
  std::byte* at(const std::string& name) const;
  void read(Device& device, const Checkpoint& checkpoint, const Graph& graph, const std::vector<std::string>& names);
  void make(Device& device, const Graph& graph, const std::vector<std::string>& names);
  WeightShare share_;
  DeviceMemory memory_;
  StagingMemory host_;
  std::map<std::string, Place> places_;
};

}  // namespace lh
