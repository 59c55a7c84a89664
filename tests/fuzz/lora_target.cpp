// LoRA files: whatever modules they claim, each is either a problem with a reason or makes the change that it says.
#include <cmath>

#include "fuzz/targets.h"
#include "io/lora_delta.h"
#include "io/lora_seal.h"

namespace lh::fuzz {

bool lora(Bytes input) {
  static MemoryFile memory;
  const std::string made = safetensors_of(input);
  return taken([&] {
    const auto& path = memory.holding(bytes_of(made));
    const bool looks = is_lora(Safetensors(path));
    const LoraFile file = read_lora(path);
    require(looks || file.entries.empty(), "modules are those of a LoRA");
    for (const LoraProblem& problem : file.problems) require(!problem.why.empty(), "a problem has a reason");
    check_lora_seal(*file.file);
    for (const LoraEntry& entry : file.entries) {
      require(std::isfinite(entry.scale()), "the scale is finite");
      const int64_t rows = entry.rows(), columns = entry.row_elements();
      require(rows >= 0 && columns >= 0, "sizes are not negative");
      if (!entry.changes_weight()) continue;
      require(rows > 0 && columns > 0, "a change has elements");
      if (checked_mul(rows, columns) > 1 << 12) continue;
      const LoraDelta delta(file, entry);
      std::vector<float> row(static_cast<size_t>(columns));
      for (int64_t i = 0; i < rows; ++i) delta.row(i, row);
      if (entry.has(LoraPart::magnitude) && !magnitude_axis(entry.shape(LoraPart::magnitude), rows, columns)) continue;
      std::vector<float> weight(static_cast<size_t>(rows * columns));
      delta.add_to({weight.data(), rows, columns, 1}, 0.5);
    }
  });
}

namespace {

struct Part {
  std::string name, shape;
  int64_t elements;
};

// float32 tensors behind each other, all zeros but the first bytes.
std::string file_of(const std::vector<Part>& parts, const std::string& metadata = "") {
  std::string json = "{" + metadata;
  int64_t at = 0;
  for (const auto& [name, shape, elements] : parts) {
    if (json.size() > 1) json += ',';
    json += fmt::format(R"("{}":{{"dtype":"F32","shape":[{}],"data_offsets":[{},{}]}})", name, shape, at,
                        at + 4 * elements);
    at += 4 * elements;
  }
  std::string data(static_cast<size_t>(at), '\x3f');
  return spelled(json + "}", data);
}

}  // namespace

std::vector<std::string> lora_seeds() {
  return {
      file_of({{"lora_unet_a.lora_down.weight", "2,3", 6},
               {"lora_unet_a.lora_up.weight", "4,2", 8},
               {"lora_unet_a.alpha", "", 1}}),
      file_of({{"t.a.lora_A.weight", "1,2", 2}, {"t.a.lora_B.weight", "2,1", 2}},
              R"("__metadata__":{"lora_host.digest":"0","sshs_model_hash":"1"})"),
      file_of({{"m.lora_down.weight", "1,2,1,1", 2},
               {"m.lora_mid.weight", "1,1,3,3", 9},
               {"m.lora_up.weight", "2,1,1,1", 2}}),
      file_of(
          {{"m.hada_w1_a", "2,1", 2}, {"m.hada_w1_b", "1,3", 3}, {"m.hada_w2_a", "2,1", 2}, {"m.hada_w2_b", "1,3", 3}}),
      file_of({{"m.hada_w1_a", "1,2", 2},
               {"m.hada_w1_b", "1,3", 3},
               {"m.hada_t1", "1,1,1,1", 1},
               {"m.hada_w2_a", "1,2", 2},
               {"m.hada_w2_b", "1,3", 3},
               {"m.hada_t2", "1,1,1,1", 1}}),
      file_of({{"m.lokr_w1", "2,2", 4}, {"m.lokr_w2_a", "2,1", 2}, {"m.lokr_w2_b", "1,2", 2}, {"m.alpha", "1", 1}}),
      file_of({{"m.lokr_w1_a", "2,1", 2},
               {"m.lokr_w1_b", "1,2", 2},
               {"m.lokr_t2", "1,1,1,1", 1},
               {"m.lokr_w2_a", "1,2", 2},
               {"m.lokr_w2_b", "1,2", 2}}),
      file_of({{"m.diff", "2,2", 4}, {"m.diff_b", "2", 2}}),
      file_of({{"m.lora_down.weight", "1,2", 2}, {"m.lora_up.weight", "3,1", 3}, {"m.dora_scale", "3,1", 3}}),
  };
}

}  // namespace lh::fuzz
