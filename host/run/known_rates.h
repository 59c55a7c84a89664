// Rates of a device with where they are from. Those of this machine's GPUs are measured once and kept in the folder of
// caches, so that later runs, and a run that is resumed, are planned by the same.
#pragma once

#include <filesystem>
#include <functional>
#include <string>

#include "run/predict.h"

namespace lh {

struct KnownRates {
  Rates rates;
  std::string from;  // "measured 2026-11-23 04:40 UTC", "as published"
};

// "products 780.0 TFLOP/s, memory 4800 GB/s, link 50.0 GB/s, as published"
std::string rates_text(const KnownRates& known);
// With another rate of the link, where one is given (--link).
KnownRates with_link(KnownRates known, const std::string& link);

// Of `what` as they are kept in the folder: a line that names all that they depend on. Where there are none, or what is
// there is no such file, they are measured, and kept. An empty folder keeps nothing.
KnownRates kept_rates(const std::filesystem::path& folder, const std::string& what,
                      const std::function<Rates()>& measure);

// Of a GPU kept ones, by device, versions of driver and libraries, and what is computed in; of a CPU the usual ones.
// room: bytes that measuring may take. products: what layers will be asked for.
KnownRates known_rates(const Device& device, DType compute, int64_t room, lk_products products);

}  // namespace lh
