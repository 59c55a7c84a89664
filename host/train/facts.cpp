#include "train/facts.h"

#include <fmt/format.h>

#include "core/hash.h"

namespace lh {
namespace {

constexpr size_t hex_digits = 16;  // of a fingerprint: enough that no two files agree by chance

// The CPU promises the same bits with any number of threads, but not with other kernels of its library; a GPU where
// train.deterministic promises them, on one kind of GPU with the same libraries. Empty: nothing is promised.
std::string device_fact(const Prepared& p) {
  const lk_device_info info = p.device.info();
  if (p.device.is_cpu()) return info.libraries;
  return p.config.train.deterministic ? std::string(info.name) + ", " + info.libraries : "";
}

}  // namespace

std::map<std::string, std::string> component_facts(Prepared& p) {
  std::map<std::string, std::string> facts;
  const Checkpoint& checkpoint = p.model.checkpoint();
  for (const ComponentSpec& component : p.model.spec().components)
    if (component.name != "denoiser" && checkpoint.has(component.name))
      facts[fmt::format("{} (model.{})", component.name, component.config_key)] =
          checkpoint.fingerprint(component.name).substr(0, hex_digits);
  for (const auto& [encoder, fingerprint] : p.text.tokenizer_fingerprints())
    facts["tokenizer of " + encoder] = sha256_hex(fingerprint).substr(0, hex_digits);
  facts["plugin " + p.model.id()] = p.model.plugin_version();
  facts["plugin of network.type " + p.adapter->id()] = p.adapter->plugin_version();
  if (const std::string device = device_fact(p); !device.empty()) facts["device"] = device;
  return facts;
}

}  // namespace lh
