// How long a graph will take, from the work of its nodes and the rates of a device: a prediction, made without running
// anything, to choose between plans and to be told to the user as one.
#pragma once

#include "graph/graph.h"
#include "run/device.h"
#include "run/plan.h"

namespace lh {

// A second each.
struct Rates {
  double products = 0;   // FLOP of a large matrix product in the type that is computed in
  double eight_bit = 0;  // the same in 8 bits, those of model.products; 0: no faster
  double memory = 0;     // bytes of device memory, read and written
  double link = 0;       // bytes between host memory and the device, each way
};

// Of a CPU, whose own are not measured: what is chosen by them is the same in every run then.
inline constexpr Rates usual_rates{.products = 1e11, .memory = 2e10, .link = 1e10};

struct PredictedTime {
  double seconds = 0;
  double waiting = 0;  // of these, for copies from and to host memory
  double sending = 0;  // that the copies take, beside the rest
};

// A product takes as long as its FLOP or its bytes do, whichever is more, at the share of the device's rates that the
// kernels reach (docs/memory.md); other operations as long as their bytes; of what runs side by side the longer branch
// counts. Copies from and to host memory go one after another beside them, each way by itself and each from where its
// node stands, and what reads one waits for it.
PredictedTime predict(const Graph& graph, const Plan& plan, const Rates& rates);
// Of it, one node's own time.
double predicted_seconds(const Graph& graph, const Plan& plan, const Node& node, const Rates& rates);
// So many bytes from one place of the device's memory to another.
double copy_seconds(int64_t bytes, const Rates& rates);
// So many bytes over the link, one way.
double link_seconds(int64_t bytes, const Rates& rates);

// FLOP a second of a product of n x n matrices, the best of a few.
double product_rate(Device& device, DType dtype, int64_t n);
// The same of products of 8 bits with rows of `compute`, which are rounded first.
double product_rate(Device& device, DType compute, lk_products products, int64_t n);
// Of a GPU measured, by a product and two copies as large as fit into `room` bytes, which takes a moment; of a CPU the
// usual ones. `products` are what layers will be asked for.
Rates rates_of(Device& device, DType compute, int64_t room, lk_products products);

}  // namespace lh
