// A C++ class behind lh_adapter:
//
//   class MyAdapter : public lora_host::Adapter { ... };
//   constexpr lh_adapter my_adapter = lora_host::adapter<MyAdapter>("mine", my_options);
#pragma once

#include <cmath>
#include <memory>

#include "lora_host/adapter.h"
#include "lora_host/graph.hpp"

namespace lora_host {

// A layer that gets an adapter.
class Layer {
 public:
  explicit Layer(const lh_layer& layer) : layer_(layer) {}

  const lh_layer* operator->() const { return &layer_; }
  bool is_conv() const { return layer_.type == LH_LAYER_CONV2D; }
  int64_t taps() const { return layer_.kernel[0] * layer_.kernel[1]; }
  // [out, in], of a convolution [out, in, kh, kw].
  Dims weight() const {
    return is_conv() ? Dims{layer_.out, layer_.in, layer_.kernel[0], layer_.kernel[1]} : Dims{layer_.out, layer_.in};
  }
  double rate() const { return layer_.rank_dropout; }

 private:
  const lh_layer& layer_;
};

// How a layer is adapted.
struct Form {
  int32_t form = LH_FORM_WEIGHT;
  double scale = 1;  // of LH_FORM_PAIR
  int64_t rank = 0;  // for reports; 0: none
  double alpha = 0;  // in files; 0: none
  bool leave_alone = false;
  bool from_start = false;  // of LH_FORM_PAIR: the change is counted from the tensors' first values
};

struct Initial {
  int32_t kind = LH_INIT_ZERO;
  double value = 0;
  static Initial constant(double value) { return {LH_INIT_CONSTANT, value}; }
  static Initial normal(double deviation) { return {LH_INIT_NORMAL, deviation}; }
  // Kaiming uniform with a = sqrt(5), as torch's layers begin: bounds of 1 / sqrt(inputs of an output).
  static Initial kaiming(int64_t inputs) { return {LH_INIT_UNIFORM, 1 / std::sqrt(static_cast<double>(inputs))}; }
  static Initial graph() { return {LH_INIT_GRAPH, 0}; }
  // Both tensors of a pair: the largest singular vectors of the weight, exactly or by so many rounds of iteration.
  static Initial singular(int64_t rounds = 0) { return {LH_INIT_SINGULAR, static_cast<double>(rounds)}; }
  static Initial qr() { return {LH_INIT_QR, 0}; }  // both tensors of a pair: the weight's QR factors
};

struct TrainedTensor {
  const char* name;
  int32_t role;  // LH_ROLE_*
  Dims shape;
  Initial initial = {};
};

// Constructed from Options; constant afterwards.
class Adapter {
 public:
  virtual ~Adapter() = default;
  virtual Form form(const Layer& layer) const = 0;
  virtual std::vector<TrainedTensor> tensors(const Layer& layer) const = 0;
  // x and y: shapes of the layer's input and output.
  virtual void build_output(Graph&, const Layer&, const Dims& /*x*/, const Dims& /*y*/) const {
    missing("build_output");
  }
  virtual void build_weight(Graph&, const Layer&) const { missing("build_weight"); }
  virtual void build_initial(Graph&, const Layer&) const { missing("build_initial"); }

 private:
  [[noreturn]] static void missing(const char* function) {
    throw Failure(LH_E_UNSUPPORTED, std::string("the adapter has no ") + function);
  }
};

template <typename T>
constexpr lh_adapter adapter(const char* id, const lh_option* options = nullptr) {
  lh_adapter out{};
  out.struct_size = sizeof(lh_adapter);
  out.id = id;
  out.options = options;
  out.create = [](const lh_host* host, const lh_attr* given, uint32_t count, void** self) noexcept {
    return guarded(*host->api, [&] {
      *self = new Held<Adapter>{host->api, std::make_unique<T>(Options(given, count))};
    });
  };
  out.destroy = [](void* self) noexcept { delete &Held<Adapter>::of(self); };
  out.form = [](void* self, const lh_layer* layer, lh_adapter_form* form) noexcept {
    return guarded(*Held<Adapter>::of(self).api, [&] {
      const Form made = Held<Adapter>::of(self).object->form(Layer(*layer));
      form->form = made.form;
      form->scale = made.scale;
      form->rank = made.rank;
      form->alpha = made.alpha;
      form->leave_alone = made.leave_alone ? 1 : 0;
      form->from_start = made.from_start ? 1 : 0;
    });
  };
  out.tensor = [](void* self, const lh_layer* layer, uint32_t index, lh_adapter_tensor* tensor) noexcept {
    return guarded(*Held<Adapter>::of(self).api, [&] {
      const std::vector<TrainedTensor> all = Held<Adapter>::of(self).object->tensors(Layer(*layer));
      if (index >= all.size()) return;
      tensor->role = all[index].role;
      tensor->name = all[index].name;
      tensor->desc = make_desc(LH_F32, all[index].shape);
      tensor->initial = all[index].initial.kind;
      tensor->value = all[index].initial.value;
    });
  };
  out.build_output = [](void* self, lh_graph* graph, const lh_layer* layer, const lh_desc* x,
                        const lh_desc* y) noexcept {
    return guarded(*graph->api, [&] {
      Graph g(graph);
      Held<Adapter>::of(self).object->build_output(g, Layer(*layer), dims_of(*x), dims_of(*y));
    });
  };
  out.build_weight = [](void* self, lh_graph* graph, const lh_layer* layer) noexcept {
    return guarded(*graph->api, [&] {
      Graph g(graph);
      Held<Adapter>::of(self).object->build_weight(g, Layer(*layer));
    });
  };
  out.build_initial = [](void* self, lh_graph* graph, const lh_layer* layer) noexcept {
    return guarded(*graph->api, [&] {
      Graph g(graph);
      Held<Adapter>::of(self).object->build_initial(g, Layer(*layer));
    });
  };
  return out;
}

}  // namespace lora_host
