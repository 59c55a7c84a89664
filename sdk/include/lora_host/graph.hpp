// Graph: the ops of ops.gen.hpp, inputs and outputs, and layers that find their weights by module name.
#pragma once

#include <string>
#include <vector>

#include "lora_host/ops.gen.hpp"
#include "lora_host/weights.hpp"

namespace lora_host {

class Graph : public Ops {
 public:
  // model: what the graph's weights come from; none for the graphs of optimizers and samplers.
  explicit Graph(lh_graph* graph, const lh_model_ctx* model = nullptr) : Ops(graph), model_(model) {}

  using Ops::log;  // the natural logarithm

  bool has_op(const char* op) const { return api().has_op(op) != 0; }
  Weights weights() const {
    if (model_ == nullptr) throw Failure(LH_E_INVALID, "this graph has no checkpoint to take weights from");
    return Weights(model_);
  }
  // Writes to the host's log; level is LH_LOG_*.
  void log(int32_t level, const std::string& text) const { api().log(nullptr, level, text.c_str()); }

  Value input(const std::string& name, const Dims& dims, lh_dtype dtype = LH_FLOAT) {
    lh_desc desc = make_desc(dtype, dims);
    return {api().input(graph(), name.c_str(), &desc)};
  }
  Value param(const std::string& name) { return {api().param(graph(), name.c_str())}; }
  Value constant(const Dims& dims, const std::vector<float>& data) { return constant(LH_F32, dims, data); }
  Value constant(const Dims& dims, const std::vector<int32_t>& data) { return constant(LH_I32, dims, data); }
  void output(const std::string& name, Value value) { api().output(graph(), name.c_str(), value.handle); }

  lh_desc describe(Value value) const {
    lh_desc desc{};
    if (api().describe(graph(), value.handle, &desc) != LH_OK)
      throw Failure(LH_E_GRAPH, "the graph holds an error");  // the host keeps the graph's first message
    return desc;
  }
  Dims shape(Value value) const { return dims_of(describe(value)); }

  // Layers named by their module. A bias is used when the checkpoint has one.
  using Ops::conv2d;
  using Ops::conv3d;
  using Ops::embedding;
  using Ops::group_norm;
  using Ops::layer_norm;
  using Ops::linear;
  using Ops::rms_norm;
  Value linear(Value x, const std::string& module) { return linear(x, weight(module), bias(module)); }
  Value conv2d(Value x, const std::string& module, int64_t stride = 1, Integers pad = {0, 0, 0, 0},
               int64_t groups = 1) {
    return conv2d(x, weight(module), bias(module), stride, pad, groups);
  }
  Value conv3d(Value x, const std::string& module, Integers stride = {1, 1, 1}, Integers pad = {0, 0, 0, 0, 0, 0}) {
    return conv3d(x, weight(module), bias(module), stride, pad);
  }
  Value layer_norm(Value x, const std::string& module, double eps) {
    return layer_norm(x, eps, weight(module), bias(module));
  }
  Value group_norm(Value x, const std::string& module, int64_t groups, double eps) {
    return group_norm(x, groups, eps, weight(module), bias(module));
  }
  Value rms_norm(Value x, const std::string& module, double eps) { return rms_norm(x, eps, weight(module)); }
  Value embedding(Value ids, const std::string& module) { return embedding(ids, weight(module)); }

  // A named part of the graph; ends with the C++ scope.
  class [[nodiscard]] Scope {
   public:
    Scope(Graph& graph, const std::string& name, uint64_t flags) : graph_(&graph) {
      graph.api().scope(graph.graph(), name.c_str(), flags);
    }
    ~Scope() { graph_->api().scope(graph_->graph(), nullptr, 0); }
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    Graph* graph_;
  };
  Scope scope(const std::string& name, uint64_t flags = 0) { return Scope(*this, name, flags); }

 private:
  Value weight(const std::string& module) { return param(module + ".weight"); }
  Value bias(const std::string& module) {
    std::string name = module + ".bias";
    return weights().has(name) ? param(name) : Value{};
  }
  template <typename T>
  Value constant(lh_dtype dtype, const Dims& dims, const std::vector<T>& data) {
    lh_desc desc = make_desc(dtype, dims);
    int64_t count = 1;
    for (int64_t length : dims) count *= length;
    if (count != static_cast<int64_t>(data.size()))
      throw Failure(LH_E_INVALID, "constant " + dims_text(dims) + " got " + std::to_string(data.size()) + " values");
    return {api().constant(graph(), &desc, data.data())};
  }

  const lh_model_ctx* model_;
};

}  // namespace lora_host
