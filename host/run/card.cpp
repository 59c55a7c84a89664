#include "run/card.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "core/bytes.h"
#include "core/error.h"
#include "core/lower.h"

namespace lh {
namespace {

struct Row {
  const char* name;
  double gib, tflops, memory, link;  // GB/s; the link as it is reached, not as it is named
  bool fp8 = false;                  // multiplies it, at twice the rate; i8 all of them do
  bool bf16 = true;
};

// Dense bf16 products with float32 sums (of the cards without it fp16), memory bandwidth, and the link of the card's
// own lanes.
constexpr Row table[] = {
    {"rtx 2060", 6, 26, 336, 12, false, false},
    {"rtx 2060 super", 8, 29, 448, 12, false, false},
    {"rtx 2070", 8, 30, 448, 12, false, false},
    {"rtx 2070 super", 8, 36, 448, 12, false, false},
    {"rtx 2080", 8, 40, 448, 12, false, false},
    {"rtx 2080 super", 8, 45, 496, 12, false, false},
    {"rtx 2080 ti", 11, 54, 616, 12, false, false},
    {"rtx 3060", 12, 25, 360, 24},
    {"rtx 3060 ti", 8, 32, 448, 24},
    {"rtx 3070", 8, 40, 448, 24},
    {"rtx 3080", 10, 59, 760, 24},
    {"rtx 3090", 24, 71, 936, 24},
    {"rtx 4060", 8, 30, 272, 12, true},
    {"rtx 4060 ti", 16, 44, 288, 12, true},
    {"rtx 4070", 12, 58, 504, 24, true},
    {"rtx 4070 ti", 12, 80, 504, 24, true},
    {"rtx 4070 ti super", 16, 88, 672, 24, true},
    {"rtx 4080", 16, 97, 717, 24, true},
    {"rtx 4090", 24, 165, 1008, 24, true},
    {"rtx 5060 ti", 16, 47, 448, 24, true},
    {"rtx 5070", 12, 62, 672, 50, true},
    {"rtx 5070 ti", 16, 88, 896, 50, true},
    {"rtx 5080", 16, 113, 960, 50, true},
    {"rtx 5090", 32, 210, 1792, 50, true},
    {"rtx a6000", 48, 155, 768, 24},
    {"rtx 6000 ada", 48, 182, 960, 24, true},
    {"t4", 16, 65, 320, 12, false, false},
    {"a10", 24, 125, 600, 24},
    {"l4", 24, 60, 300, 24, true},
    {"l40s", 48, 181, 864, 24, true},
    {"a100", 80, 312, 2039, 24},
    {"h100", 80, 780, 3350, 50, true},
    {"h200", 141, 780, 4800, 50, true},
};

Card from(const Row& row, lk_products products) {
  return {
      .name = row.name,
      .memory = static_cast<int64_t>(row.gib * 0x1p30),
      .rates = {.products = row.tflops * 1e12,
                .eight_bit =
                    products == LK_PRODUCTS_I8 || (products == LK_PRODUCTS_E4M3 && row.fp8) ? 2 * row.tflops * 1e12 : 0,
                .memory = row.memory * 1e9,
                .link = row.link * 1e9},
      .known = true,
      .bf16 = row.bf16};
}

const Row* row_of(const std::string& text) {
  std::string name = lower(text);
  for (const char* const maker : {"nvidia ", "geforce "})
    if (name.starts_with(maker)) name.erase(0, std::string_view(maker).size());
  std::ranges::replace(name, '-', ' ');
  std::ranges::replace(name, '_', ' ');
  for (const Row& row : table)
    if (name == row.name || "rtx " + name == row.name) return &row;
  return nullptr;
}

// The number in front of one of the units; nothing where the text is something else.
std::optional<double> number_before(std::string text, std::initializer_list<const char*> units) {
  text = lower(text);
  double number = 0;
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, number);
  if (error != std::errc() || !(number > 0)) return std::nullopt;
  std::string_view rest(stop, static_cast<size_t>(end - stop));
  while (rest.starts_with(' ')) rest.remove_prefix(1);
  const bool known = std::ranges::any_of(units, [&](const char* unit) { return rest == unit; });
  return known ? std::optional(number) : std::nullopt;
}

// Is it written as a size, if of no card: 0, -3, 1e9, nan?
bool looks_like_size(const std::string& text) {
  double number = 0;
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, number);
  return stop != text.data() && size_of(std::string("1").append(stop, end));
}

}  // namespace

double rate_of(const std::string& flag, const std::string& text) {
  if (const auto number = number_before(text, {"gb/s", "gb", ""})) return *number * 1e9;
  fail(Code::config, "{}: expected a rate such as 24GB/s, found {}", flag, text);
}

int64_t usable_memory(const Card& card) {
  constexpr int64_t margin = int64_t{700} << 20;
  return std::max<int64_t>(card.memory - margin, 1);
}

bool is_card(const std::string& name) { return row_of(name) != nullptr; }

Card card_of(const std::string& text, lk_products products, const std::string& flag) {
  if (const Row* row = row_of(text)) return from(*row, products);

  std::optional<int64_t> memory;
  std::optional<double> rate, bandwidth;
  constexpr int64_t most_memory = int64_t{1} << 40;
  bool no_size = false, no_figure = false;
  for (size_t at = 0; at <= text.size();) {
    const size_t comma = std::min(text.find(',', at), text.size());
    std::string part = text.substr(at, comma - at);
    while (part.starts_with(' ')) part.erase(0, 1);
    if (const auto bytes = number_before(part, {"gb/s"}))
      bandwidth = bytes;
    else if (const auto tflops = number_before(part, {"tflop/s", "tflops"}))
      rate = tflops;
    else if (const auto size = size_of(part))
      memory = size;
    else
      (looks_like_size(part) ? no_size : no_figure) = true;
    at = comma + 1;
  }
  if (no_size || memory.value_or(0) > most_memory)
    fail(Code::config,
         "{}: expected the card's memory in GiB, more than 0 and at most {}, such as 24 (or with a unit: 24576 MiB), "
         "found \"{}\"",
         flag, most_memory >> 30, text);
  std::string names;
  for (const Row& row : table) names += fmt::format("{}{}", names.empty() ? "" : ", ", row.name);
  if (no_figure || !memory)
    fail(Code::config,
         "{}: expected the card's memory in GiB, such as 24, its name, or figures such as \"12 GB, 58 TFLOP/s, 504 "
         "GB/s\", found \"{}\". Known names: {}",
         flag, text, names);
  // The slowest of those with about so much memory, of cards that multiply what models are computed in by default.
  const Row* like = nullptr;
  for (const Row& row : table) {
    if (!row.bf16) continue;
    const double gib = static_cast<double>(*memory) / 0x1p30;
    const auto distance = [&](const Row& r) { return std::abs(r.gib - gib); };
    if (like == nullptr || distance(row) < distance(*like) ||
        (distance(row) == distance(*like) && row.tflops < like->tflops))
      like = &row;
  }
  Card card = from(*like, products);
  card.name = text;
  card.known = false;
  card.memory = *memory;
  if (rate) {
    if (card.rates.eight_bit > 0) card.rates.eight_bit = 2 * *rate * 1e12;
    card.rates.products = *rate * 1e12;
  }
  if (bandwidth) card.rates.memory = *bandwidth * 1e9;
  return card;
}

std::optional<std::string> slow_type(const lk_device_info& device, DType compute) {
  const int32_t capability = device.compute_capability;
  if (compute != DType::bf16 || capability == 0 || capability >= 80) return std::nullopt;
  return fmt::format(
      "bf16 has no matrix instructions on {} (compute capability {}.{}), so that a step takes several times as long as "
      "in fp16: set train.dtype: fp16 (--dtype fp16), whose gradients are scaled as they need it",
      device.name, capability / 10, capability % 10);
}

}  // namespace lh
