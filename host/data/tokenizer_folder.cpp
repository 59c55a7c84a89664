// Where the tokenizer files lie: named by the environment, installed, or in the source tree.
#include <cstdlib>
#include <system_error>

#include "core/error.h"
#include "data/tokenizer.h"

namespace lh {

namespace fs = std::filesystem;

fs::path tokenizer_folder(const std::string& kind) {
  if (kind != "clip" && kind != "t5")
    fail(Code::internal, "tokenizer: expected kind \"clip\" or \"t5\", found \"{}\"", kind);
  std::error_code error;
  if (const char* named = std::getenv("LORA_HOST_DATA"); named != nullptr && *named != 0) {
    const fs::path folder = fs::path(named) / "tokenizers" / kind;
    if (fs::is_directory(folder, error)) return folder;
    fail(Code::data, "tokenizer: LORA_HOST_DATA is set but there is no folder {} (correct it or unset it)",
         folder.string());
  }
  std::string tried;
  const auto present = [&](const fs::path& folder) {
    tried += "\n  " + folder.string();
    return fs::is_directory(folder, error);
  };
  if (const fs::path program = fs::read_symlink("/proc/self/exe", error); !program.empty()) {
    const fs::path data = (program.parent_path() / LORA_DATADIR_FROM_BINDIR / "lora-host").lexically_normal();
    const fs::path installed = data / "tokenizers" / kind;
    if (present(installed)) return installed;
  }
#ifdef LORA_SOURCE_DATA
  if (const fs::path source = fs::path(LORA_SOURCE_DATA) / "tokenizers" / kind; present(source)) return source;
#endif
  fail(Code::data,
       "tokenizer: the files of \"{}\" were not found (set LORA_HOST_DATA to the folder that holds "
       "\"tokenizers\"); tried:{}",
       kind, tried);
}

}  // namespace lh
