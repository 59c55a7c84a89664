// The program of libFuzzer. LORA_FUZZ_TARGET names the target ("list" prints them); with LORA_FUZZ_SEEDS, a folder, it
// writes the target's seeds there and ends.
#include <spdlog/spdlog.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

#include "fuzz/fuzz.h"

namespace {

const lh::fuzz::Target* chosen = nullptr;

void write_seeds(const std::filesystem::path& folder) {
  int number = 0;
  for (const std::string& seed : chosen->seeds())
    std::ofstream(folder / ("seed-" + std::to_string(number++)), std::ios::binary) << seed;
}

// Adds the target's own options to the command line, before those that are given.
void add_options(int* argc, char*** argv) {
  static std::vector<std::string> words{"-max_len=" + std::to_string(chosen->longest)};
  if (!chosen->dictionary.empty())
    words.push_back("-dict=" LORA_SOURCE_DIR "/tests/fuzz/" + std::string(chosen->dictionary));
  static std::vector<char*> all{(*argv)[0]};
  for (std::string& word : words) all.push_back(word.data());
  all.insert(all.end(), *argv + 1, *argv + *argc);
  *argc = static_cast<int>(all.size());
  all.push_back(nullptr);
  *argv = all.data();
}

}  // namespace

extern "C" int LLVMFuzzerInitialize(int* argc, char*** argv) {
  const char* name = std::getenv("LORA_FUZZ_TARGET");
  const auto all = lh::fuzz::targets();
  if (name != nullptr && std::string_view(name) == "list") {
    for (const auto& target : all) std::printf("%s\n", std::string(target.name).c_str());
    std::exit(0);
  }
  const auto found = std::ranges::find(all, std::string_view(name == nullptr ? "" : name), &lh::fuzz::Target::name);
  if (found == all.end()) {
    std::fprintf(stderr, "LORA_FUZZ_TARGET must be one of");
    for (const auto& target : all) std::fprintf(stderr, " %s", std::string(target.name).c_str());
    std::fprintf(stderr, "\n");
    std::exit(2);
  }
  chosen = &*found;
  spdlog::set_level(spdlog::level::off);
  if (const char* folder = std::getenv("LORA_FUZZ_SEEDS")) {
    write_seeds(folder);
    std::exit(0);
  }
  add_options(argc, argv);
  return 0;
}

extern "C" size_t LLVMFuzzerMutate(uint8_t* data, size_t size, size_t most);

// Half of the mutations are libFuzzer's own, half the target's. A quarter of those begin at a seed again: of what
// libFuzzer keeps, most is refused early and for another reason.
extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t most, unsigned seed) {
  lh::fuzz::Random random(seed);
  if (chosen->edit == nullptr || lh::fuzz::below(2, random) == 0) return LLVMFuzzerMutate(data, size, most);
  static const std::vector<std::string> seeds = chosen->seeds();
  std::string made(reinterpret_cast<const char*>(data), size);
  if (lh::fuzz::below(4, random) == 0) made = seeds[lh::fuzz::below(seeds.size(), random)];
  for (size_t edits = 1 + lh::fuzz::below(3, random); edits > 0; --edits) made = chosen->edit(made, random);
  const size_t length = std::min(made.size(), most);
  std::copy_n(made.begin(), length, data);
  return length;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  chosen->run(std::as_bytes(std::span(data, size)));
  return 0;
}
