// Graphics cards by their published figures, for plans of a machine that is not at hand.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/tensor.h"
#include "lora_kernels.h"
#include "run/predict.h"

namespace lh {

struct Card {
  std::string name;
  int64_t memory = 0;  // bytes
  Rates rates;         // of products in bf16, or else fp16, that add up in float32
  bool known = false;  // by its name; else the rates are another's of that size
  bool bf16 = true;    // has matrix instructions for it
};

inline constexpr const char* published_rates = "as published";  // KnownRates::from

// "rtx 4070", or figures: "12 GB, 58 TFLOP/s, 504 GB/s", of which the first is enough; the others are those of the
// slowest known card of that size. `products` are what layers will be asked for. Throws lh::Error(Code::config) that
// names `flag` and lists the names.
Card card_of(const std::string& text, lk_products products = LK_PRODUCTS_WIDE, const std::string& flag = "--card");
// Is it a name that card_of() knows?
bool is_card(const std::string& name);
// Why computing in this type is slow on the device and what to do, or nothing.
std::optional<std::string> slow_type(const lk_device_info& device, DType compute);
// What of its memory a run may take: the rest is its driver's, the libraries' kernels' and a desktop's.
int64_t usable_memory(const Card& card);
// "24 GB/s", "24GB/s", "24": bytes a second, in units of 1e9. Throws lh::Error(Code::config) naming `flag`.
double rate_of(const std::string& flag, const std::string& text);

}  // namespace lh
