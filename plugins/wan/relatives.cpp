// Models that share Wan's names, so that a wrong file is refused by its name.
#include "denoiser.h"

namespace wan {

using lora_host::Dims;
using lora_host::Weights;

namespace {

struct Relative {
  const char* part;  // keys begin so
  const char* name;
};

constexpr Relative relatives[] = {
    {"vace_", "Wan VACE, which is shown further pictures"},
    {"control_adapter.", "Wan Fun Camera, which is told how a camera moves"},
    {"ref_conv.", "Wan Fun Control, which is shown further pictures"},
    {"casual_audio_encoder.", "Wan S2V, which listens to sound"},
    {"audio_proj.", "a Wan model that listens to sound, like HuMo"},
    {"face_adapter.", "Wan Animate, which follows a face"},
    {"motion_encoder.", "Wan Animate, which follows a face"},
    {"img_emb.emb_pos", "Wan 2.1 of first and last frames, FLF2V"},
    {"condition_embedder.image_embedder.pos_embed", "Wan 2.1 of first and last frames, FLF2V"},
};

}  // namespace

std::optional<std::string> relative(const Weights& w) {
  const std::string end =
      "; trained here are text-to-video models (Wan 2.1, Wan 2.2 A14B and TI2V 5B) and image-to-video (Wan 2.1, Wan "
      "2.2 A14B)";
  for (const Relative& one : relatives)
    if (!w.first_with_prefix(one.part).empty())
      return std::string("this is ") + one.name + " (" + one.part + "*)" + end;
  const Dims in = w.find("patch_embedding.weight").value_or(Dims{}), out = w.find("head.head.weight").value_or(Dims{});
  if (in.size() != 5 || out.size() != 2 || !w.has("head.modulation")) return std::nullopt;
  const int64_t given = in[1], made = out[0] / (Dimensions::patch * Dimensions::patch);
  const std::string channels = "(patch_embedding.weight takes " + std::to_string(given) + " channels)";
  const bool first_frame = given == 2 * made + Dimensions::frames_of_latent;
  if (given != made && !first_frame)
    return "this is a Wan model that is shown further pictures, like Fun Control " + channels + end;
  return std::nullopt;
}

bool has_two_experts(const Weights& w) {
  const std::string index = w.document("", "model_index.json").value_or("");
  const std::string key = "\"boundary_ratio\"";
  size_t at = index.find(key);
  if (at != index.npos) at = index.find_first_not_of(": \t\r\n", at + key.size());
  return at != index.npos && index.substr(at, 2) == "0.";
}

}  // namespace wan
