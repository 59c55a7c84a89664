#include "sample/generation_parameters.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <span>

#include "core/utf8.h"
#include "io/lora_seal.h"
#include "io/safetensors.h"

namespace lh {
namespace {

namespace fs = std::filesystem;

// The names of those interfaces; others have none there.
struct Spelling {
  std::string_view id, theirs;
};
constexpr Spelling samplers[] = {{"euler", "Euler"},
                                 {"flow_euler", "Euler"},
                                 {"euler_ancestral", "Euler a"},
                                 {"heun", "Heun"},
                                 {"flow_heun", "Heun"},
                                 {"dpm_2", "DPM2"},
                                 {"ddim", "DDIM"},
                                 {"lms", "LMS"},
                                 {"dpmpp_2m", "DPM++ 2M"},
                                 {"dpmpp_2s_ancestral", "DPM++ 2S a"},
                                 {"dpmpp_sde", "DPM++ SDE"},
                                 {"dpmpp_2m_sde", "DPM++ 2M SDE"},
                                 {"dpmpp_3m_sde", "DPM++ 3M SDE"},
                                 {"uni_pc", "UniPC"},
                                 {"lcm", "LCM"},
                                 {"res_multistep", "Res Multistep"}},
                   schedules[] = {{"normal", "Automatic"},
                                  {"simple", "Simple"},
                                  {"sgm_uniform", "SGM Uniform"},
                                  {"ddim_uniform", "DDIM"},
                                  {"karras", "Karras"},
                                  {"exponential", "Exponential"},
                                  {"polyexponential", "Polyexponential"},
                                  {"beta", "Beta"},
                                  {"kl_optimal", "KL Optimal"}};

std::string spelled(std::span<const Spelling> all, std::string_view id) {
  const auto found = std::ranges::find(all, id, &Spelling::id);
  return std::string(found == all.end() ? id : found->theirs);
}

// A file's without its extension; a folder's is whole: a dot in it is that of a version.
std::string name_of(const fs::path& path) {
  std::error_code none;
  const fs::path full = fs::absolute(path, none).lexically_normal();
  const fs::path last = full.has_filename() ? full : full.parent_path();
  return mended_utf8((fs::is_directory(last, none) ? last.filename() : last.stem()).string());
}

// Values that would be taken for more than one stand in quotes, as JSON has them.
std::string quoted(const std::string& value) {
  if (value.find_first_of(",\n:") == value.npos) return value;
  return nlohmann::json(value).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

std::string hash_of(const fs::path& path) {
  constexpr size_t digits = 12;
  return data_hash(Safetensors(path)).substr(0, digits);
}

}  // namespace

GenerationParameters::GenerationParameters(const ModelConfig& model, const SamplerChoice& sampler,
                                           const std::vector<LoraInput>& loras)
    : model_(name_of(model.name_or_path)),
      sampler_(spelled(samplers, sampler.sampler->id())),
      schedule_(spelled(schedules, sampler.schedule->id())) {
  std::vector<std::string> hashes;
  for (const LoraInput& lora : loras) {
    const std::string name = name_of(lora.path);
    tags_ += fmt::format(" <lora:{}:{}>", name, lora.strength);
    hashes.push_back(fmt::format("{}: {}", name, hash_of(lora.path)));
  }
  hashes_ = fmt::format("{}", fmt::join(hashes, ", "));
}

std::string GenerationParameters::text(const SampleRequest& request, const Recipe& recipe, const Fields& more) const {
  Fields fields;
  const auto add = [&](const char* name, const auto& value) { fields.emplace_back(name, fmt::format("{}", value)); };
  const Guidance& guidance = request.guidance;
  add("Steps", request.steps);
  add("Sampler", sampler_);
  add("Schedule type", schedule_);
  add("CFG scale", recipe.guided() ? 1 : guidance.scale);
  if (recipe.guided()) add("Distilled CFG Scale", guidance.scale);
  if (guidance.classifier_free) {
    if (guidance.rescale > 0) add("CFG rescale", guidance.rescale);
    if (guidance.limit > 0) add("CFG renorm", guidance.limit);
    if (guidance.by_patches) add("CFG norm", "True");
    if (guidance.until < 1) add("CFG truncation", guidance.until);
    if (guidance.skip_layers) add("Skip layer guidance scale", guidance.skip_layers->scale);
  }
  add("Seed", request.seed);
  add("Size", fmt::format("{}x{}", request.width, request.height));
  if (request.frames > 1) {
    add("Frames", request.frames);
    add("FPS", request.fps);
  }
  for (const auto& [key, image] : request.images)
    add(("Image " + key).c_str(), mended_utf8(image.path.filename().string()));
  add("Model", model_);
  if (!hashes_.empty()) add("Lora hashes", hashes_);
  fields.insert(fields.end(), more.begin(), more.end());
  add("Version", "lora-host " LORA_HOST_VERSION);

  std::vector<std::string> last;
  for (const auto& [name, value] : fields) last.push_back(fmt::format("{}: {}", name, quoted(value)));
  std::string out = request.prompt + tags_;
  out.erase(0, out.find_first_not_of(" \n"));  // readers do so, too
  if (!out.empty()) out += "\n";
  if (request.asked_without() && !request.negative.empty()) out += "Negative prompt: " + request.negative + "\n";
  return out + fmt::format("{}", fmt::join(last, ", "));
}

}  // namespace lh
