// One small text file for each device and kind of product.
#include "run/known_rates.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <ctime>
#include <optional>
#include <string_view>
#include <utility>

#include "core/cache_folder.h"
#include "core/hash.h"
#include "core/log.h"
#include "io/file.h"
#include "run/card.h"

namespace lh {
namespace {

constexpr std::pair<const char*, double Rates::*> lines[] = {{"products", &Rates::products},
                                                             {"eight_bit", &Rates::eight_bit},
                                                             {"memory", &Rates::memory},
                                                             {"link", &Rates::link}};

// The text behind "name " in the next line; nothing where that is another.
std::optional<std::string_view> take(std::string_view& text, std::string_view name) {
  const size_t end = text.find('\n');
  const std::string_view line = text.substr(0, end);
  if (end == text.npos || !line.starts_with(name) || !line.substr(name.size()).starts_with(' ')) return std::nullopt;
  text.remove_prefix(end + 1);
  return line.substr(name.size() + 1);
}

std::optional<KnownRates> parsed(std::string_view text, const std::string& what) {
  KnownRates known;
  if (take(text, "of") != what) return std::nullopt;
  const std::optional<std::string_view> when = take(text, "measured");
  if (!when) return std::nullopt;
  known.from = fmt::format("measured {}", *when);
  for (const auto& [name, member] : lines) {
    const std::optional<std::string_view> number = take(text, name);
    if (!number) return std::nullopt;
    double& rate = known.rates.*member;
    const auto [end, error] = std::from_chars(number->data(), number->data() + number->size(), rate);
    const bool may_be_none = member == &Rates::eight_bit;
    const bool whole = error == std::errc() && end == number->data() + number->size();
    if (!whole || !std::isfinite(rate) || !(rate > 0 || (may_be_none && rate == 0))) return std::nullopt;
  }
  return known;
}

std::string now() {
  const std::time_t seconds = std::time(nullptr);
  std::tm parts{};
  gmtime_r(&seconds, &parts);
  char text[32] = {};
  std::strftime(text, sizeof text, "%Y-%m-%d %H:%M UTC", &parts);
  return text;
}

}  // namespace

std::string rates_text(const KnownRates& known) {
  const Rates& r = known.rates;
  const std::string eight_bit = r.eight_bit > 0 ? fmt::format(" ({:.1f} in 8 bits)", r.eight_bit * 1e-12) : "";
  return fmt::format("products {:.1f} TFLOP/s{}, memory {:.0f} GB/s, link {:.1f} GB/s, {}", r.products * 1e-12,
                     eight_bit, r.memory * 1e-9, r.link * 1e-9, known.from);
}

KnownRates with_link(KnownRates known, const std::string& link) {
  if (link.empty()) return known;
  known.rates.link = rate_of("--link", link);
  known.from += ", the link as given";
  return known;
}

KnownRates kept_rates(const std::filesystem::path& folder, const std::string& what,
                      const std::function<Rates()>& measure) {
  const std::filesystem::path file =
      folder.empty() ? folder : folder / fmt::format("rates-{}.txt", sha256_hex(what).substr(0, 16));
  std::error_code none;
  if (!file.empty() && std::filesystem::exists(file, none)) try {
      constexpr int64_t most = 1 << 16;
      if (const auto known = parsed(read_text(file, most), what)) return *known;
    } catch (const Error&) {  // measured anew
    }
  const std::string when = now();
  KnownRates known{measure(), fmt::format("measured {}", when)};
  if (file.empty()) return known;
  std::string text = fmt::format("of {}\nmeasured {}\n", what, when);
  for (const auto& [name, member] : lines) text += fmt::format("{} {}\n", name, known.rates.*member);
  try {
    make_folder(folder);
    publish_text(file, text);
  } catch (const Error& error) {
    log_warning("{}: the rates of the device are not kept for later runs: {}", file.string(), error.what());
  }
  return known;
}

KnownRates known_rates(const Device& device, DType compute, int64_t room, lk_products products) {
  if (device.is_cpu()) return {usual_rates, "as usual, not measured"};
  constexpr int64_t enough = 256 << 20;  // for the whole measurement
  room = std::min(room, enough);
  const lk_device_info info = device.info();
  constexpr const char* numbers[] = {"", ", products in fp8", ", products in int8"};  // by lk_products
  const std::string what = fmt::format("{}; {}; {}{}; {} bytes; in rows of 8", info.name, info.libraries,
                                       dtype_name(compute), numbers[products], room);
  return kept_rates(cache_folder(), what, [&] {
    Device apart(device.name());  // what is measured with counts for no peak of the run
    return rates_of(apart, compute, room, products);
  });
}

}  // namespace lh
