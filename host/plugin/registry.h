// Every loaded plugin and what it offers, found by id.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "config/model_keys.h"
#include "plugin/loader.h"
#include "plugin/services.h"

namespace lh {

template <typename Descriptor>
struct Offered {
  const Descriptor* descriptor = nullptr;
  lh_host* host = nullptr;
};

class Registry {
 public:
  Registry(const std::vector<std::filesystem::path>& directories, const std::vector<std::string>& asked_for);
  const Plugins& plugins() const { return plugins_; }
  std::vector<Offered<lh_model>> models() const;
  std::vector<Offered<lh_sampler>> samplers() const;
  // The keys of `model:` that each model has.
  std::vector<PluginKeys> model_keys() const;
  // Throw lh::Error(Code::config) that lists the known ids.
  Offered<lh_optimizer> optimizer(const std::string& id) const;
  Offered<lh_sampler> sampler(const std::string& id) const;

 private:
  std::vector<std::unique_ptr<lh_host>> hosts_;
  Plugins plugins_;
};

}  // namespace lh
