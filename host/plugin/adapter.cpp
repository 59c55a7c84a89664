#include "plugin/adapter.h"

#include <algorithm>
#include <cmath>

#include "passes/layout.h"
#include "plugin/services.h"

namespace lh {
namespace {

// A layer as plugins see it. Texts point into this object.
class AbiLayer {
 public:
  explicit AbiLayer(const AdapterLayer& from) {
    const size_t colon = from.module.find(':');
    component_ = colon == std::string::npos ? "denoiser" : from.module.substr(0, colon);
    module_ = colon == std::string::npos ? from.module : from.module.substr(colon + 1);
    layer_.struct_size = sizeof layer_;
    layer_.type = from.is_conv() ? LH_LAYER_CONV2D : LH_LAYER_LINEAR;
    layer_.module = module_.c_str();
    layer_.component = component_.c_str();
    layer_.in = from.weight[1];
    layer_.out = from.weight[0];
    for (int i = 0; i < 2; ++i) layer_.kernel[i] = from.is_conv() ? from.weight[2 + i] : 1;
    layer_.stride = from.stride;
    std::ranges::copy(from.pad, layer_.pad);
    layer_.groups = 1;
    layer_.rank = from.rank;
    layer_.alpha = from.alpha;
    layer_.dropout = from.dropout;
    layer_.rank_dropout = from.rank_dropout;
  }
  AbiLayer(const AbiLayer&) = delete;
  AbiLayer& operator=(const AbiLayer&) = delete;
  const lh_layer* get() const { return &layer_; }

 private:
  std::string module_, component_;
  lh_layer layer_{};
};

// A pair is what the host's own op takes.
void check_pair(const Call& call, const AdapterLayer& layer, const std::vector<AdapterTensorSpec>& tensors) {
  const Shape& w = layer.weight;
  const int64_t rank = tensors.empty() ? 0 : tensors[0].shape[0];
  const Shape up = layer.is_conv() ? Shape{w[0], rank, 1, 1} : Shape{w[0], rank};
  if (tensors.size() != 2 || tensors[0].shape != w.with(0, rank) || tensors[1].shape != up)
    call.wrong(
        fmt::format("LH_FORM_PAIR has two tensors, {} and {}, which these are not", w.with(0, rank).text(), up.text()));
}

bool from_weight(const InitialValue& initial) {
  return initial.kind == InitialValue::Kind::singular || initial.kind == InitialValue::Kind::qr;
}

// Factors of the weight are what both matrices of a pair begin with.
void check_factors(const Call& call, const AdapterLayer& layer, const AdapterForm& form,
                   const std::vector<AdapterTensorSpec>& tensors) {
  if (std::ranges::none_of(tensors, from_weight, &AdapterTensorSpec::initial)) return;
  const int64_t outputs = layer.weight[0], most = std::min(outputs, layer.weight.numel() / outputs);
  const InitialValue& first = tensors[0].initial;
  if (form.kind != AdapterForm::Kind::pair || tensors[1].initial != first || !(form.scale > 0))
    call.wrong("LH_INIT_SINGULAR and LH_INIT_QR are of both tensors of an LH_FORM_PAIR with a scale above 0");
  if (tensors[0].shape[0] > most || first.value < 0 || first.value != std::floor(first.value))
    call.wrong(fmt::format("asks for {} factors of a weight {}, in {} rounds", tensors[0].shape[0], layer.weight.text(),
                           first.value));
}

}  // namespace

Adapter::Adapter(const Registry& registry, const std::string& id, const GivenOptions& options)
    : Adapter(registry.adapter(id), options) {}

Adapter::Adapter(const Offered<lh_adapter>& offered, const GivenOptions& options)
    : part_("adapter", offered, options, "network.network_kwargs") {}

Call Adapter::calling(const char* function, const AdapterLayer& layer, GraphContext* graph) const {
  return part_.call(fmt::format("{} of {}", function, layer.module), graph);
}

AdapterForm Adapter::form(const AdapterLayer& layer) const {
  const AbiLayer given(layer);
  lh_adapter_form made{};
  made.struct_size = sizeof made;
  Call call = calling("form", layer);
  call.check(call.run([&] { return part_->form(part_.self(), given.get(), &made); }));
  if (made.leave_alone != 0) return {};
  using Kind = AdapterForm::Kind;
  const Kind kind = made.form == LH_FORM_PAIR     ? Kind::pair
                    : made.form == LH_FORM_OUTPUT ? Kind::output
                    : made.form == LH_FORM_WEIGHT ? Kind::weight
                                                  : Kind::none;
  if (kind == Kind::none) call.wrong(fmt::format("gives the form {}, which there is not (LH_FORM_*)", made.form));
  if ((kind == Kind::output && part_->build_output == nullptr) ||
      (kind == Kind::weight && part_->build_weight == nullptr))
    call.wrong(
        fmt::format("gives a form whose {} it does not have", kind == Kind::output ? "build_output" : "build_weight"));
  if (made.from_start != 0 && kind != Kind::pair) call.wrong("gives from_start, which is of LH_FORM_PAIR");
  if (!std::isfinite(made.scale) || !std::isfinite(made.alpha) || made.rank < 0)
    call.wrong(fmt::format("gives scale {}, alpha {} and rank {}", made.scale, made.alpha, made.rank));
  return {kind, made.scale, made.rank, made.alpha, made.from_start != 0};
}

std::vector<AdapterTensorSpec> Adapter::tensors(const AdapterLayer& layer) const {
  constexpr uint32_t limit = 64;
  const AbiLayer given(layer);
  std::vector<AdapterTensorSpec> all;
  Call call = calling("tensor", layer);
  for (uint32_t i = 0;; ++i) {
    lh_adapter_tensor made{};
    made.struct_size = sizeof made;
    call.check(call.run([&] { return part_->tensor(part_.self(), given.get(), i, &made); }));
    if (made.name == nullptr) break;
    if (i == limit) call.wrong(fmt::format("the list of tensors does not end: number {} is still there", i));
    const std::string name = made.name;
    const Desc desc = from_abi(made.desc, DType::f32);
    if (name.empty() || std::ranges::count(all, name, &AdapterTensorSpec::key) > 0)
      call.wrong(fmt::format("the name '{}' of tensor number {} is empty or used twice", name, i));
    if (desc.dtype != DType::f32 || desc.shape.numel() == 0)
      call.wrong(fmt::format("tensor '{}' is {}, expected float32 with elements", name, desc.text()));
    if (made.role < LH_ROLE_OTHER || made.role > LH_ROLE_WEIGHT || made.initial < LH_INIT_ZERO ||
        made.initial > LH_INIT_QR || !std::isfinite(made.value))
      call.wrong(
          fmt::format("tensor '{}' has role {}, initial {} and value {}", name, made.role, made.initial, made.value));
    all.push_back({name,
                   static_cast<TensorRole>(made.role),
                   desc.shape,
                   {static_cast<InitialValue::Kind>(made.initial), made.value}});
  }
  if (all.empty()) call.wrong("there is no tensor to train");
  const AdapterForm taken = form(layer);
  if (taken.kind == AdapterForm::Kind::pair) check_pair(call, layer, all);
  check_factors(call, layer, taken, all);
  return all;
}

Value Adapter::built(Graph& graph, const char* function, const AdapterLayer& layer, const Values& given, int32_t scope,
                     const std::string& output, const Desc& like, const Build& build) const {
  const GraphHandle handle = open_graph(part_.host(), graph, nullptr, given);
  handle->scopes = {scope};
  Call call = calling(function, layer, handle.get());
  call.check(call.run([&] { return build(handle.get()); }));
  const auto found = graph.outputs.find(output);
  if (found == graph.outputs.end()) call.wrong(fmt::format("gives no '{}'", output));
  if (graph.desc(found->second) != like)
    call.wrong(fmt::format("gives '{}' as {}, expected {}", output, graph.desc(found->second).text(), like.text()));
  for (const auto& [name, value] : graph.inputs)
    if (name != "keep.rank" && name != "keep.element")
      call.wrong(fmt::format("asks for an input '{}', which there is not", name));
  return found->second;
}

Value Adapter::build_output(Graph& graph, const AdapterLayer& layer, const Values& given, int32_t scope) const {
  const AbiLayer abi(layer);
  const Desc& y = graph.desc(given.at("y"));
  const lh_desc x_desc = to_abi(graph.desc(given.at("x"))), y_desc = to_abi(y);
  return built(graph, "build_output", layer, given, scope, "y", Desc(y),
               [&](lh_graph* g) { return part_->build_output(part_.self(), g, abi.get(), &x_desc, &y_desc); });
}

Value Adapter::build_weight(Graph& graph, const AdapterLayer& layer, const Values& given, int32_t scope) const {
  const AbiLayer abi(layer);
  return built(graph, "build_weight", layer, given, scope, "weight", {DType::f32, layer.weight},
               [&](lh_graph* g) { return part_->build_weight(part_.self(), g, abi.get()); });
}

Graph Adapter::initial_values(const AdapterLayer& layer) const {
  Graph graph(DType::f32);
  const AbiLayer abi(layer);
  const GraphHandle handle = open_graph(part_.host(), graph);
  Call call = calling("build_initial", layer, handle.get());
  if (part_->build_initial == nullptr) call.wrong("a tensor begins with LH_INIT_GRAPH, and there is no graph");
  call.check(call.run([&] { return part_->build_initial(part_.self(), handle.get(), abi.get()); }));
  settle_layouts(graph);
  for (const auto& [name, value] : graph.inputs)
    if (name != "weight" || graph.desc(value) != Desc{DType::f32, layer.weight})
      call.wrong(fmt::format("asks for an input '{}' {}, expected 'weight' float32 {}", name, graph.desc(value).text(),
                             layer.weight.text()));
  for (const AdapterTensorSpec& tensor : tensors(layer)) {
    if (tensor.initial.kind != InitialValue::Kind::graph) continue;
    const auto found = graph.outputs.find(tensor.key);
    if (found == graph.outputs.end() || graph.desc(found->second) != Desc{DType::f32, tensor.shape})
      call.wrong(fmt::format("does not give '{}' as float32 {}", tensor.key, tensor.shape.text()));
  }
  return graph;
}

}  // namespace lh
