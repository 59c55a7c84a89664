// T5's tokenizer: the sentencepiece library on the model's own file, then the end token and padding.
#include <sentencepiece_processor.h>

#include <algorithm>
#include <mutex>
#include <system_error>

#include "core/error.h"
#include "data/tokenizer.h"
#include "io/file.h"

namespace lh {
namespace {

constexpr int32_t end_id = 1, pad_id = 0;
constexpr int64_t max_file_bytes = 64 << 20;

class T5Tokenizer : public Tokenizer {
 public:
  explicit T5Tokenizer(const std::filesystem::path& model) : model_(model) {
    std::error_code error;
    if (!std::filesystem::is_regular_file(model_, error))
      fail(Code::data, "tokenizer: there is no file {} (expected T5's spiece.model)", model_.string());
  }

  std::vector<int32_t> encode(const std::string& utf8, int64_t length, int64_t* cut) const override {
    if (length < 1) fail(Code::internal, "tokenizer: T5 needs room for 1 id, not {}", length);
    std::vector<int> pieces;
    if (const auto status = processor().Encode(utf8, &pieces); !status.ok())
      fail(Code::data, "tokenizer: sentencepiece cannot encode a text of {} bytes: {}", utf8.size(), status.ToString());
    const int64_t lost = std::max<int64_t>(static_cast<int64_t>(pieces.size()) + 1 - length, 0);
    if (cut != nullptr) *cut = lost;
    std::vector<int32_t> ids(pieces.begin(), pieces.end() - lost);
    ids.push_back(end_id);
    ids.resize(static_cast<size_t>(length), pad_id);
    return ids;
  }

 private:
  const sentencepiece::SentencePieceProcessor& processor() const {
    std::call_once(loaded_, [this] {
      const std::string bytes = read_text(model_, max_file_bytes);
      if (const auto status = processor_.LoadFromSerializedProto(bytes); !status.ok())
        fail(Code::data, "tokenizer {}: not a sentencepiece model (install it anew): {}", model_.string(),
             status.ToString());
      if (processor_.eos_id() != end_id || processor_.pad_id() != pad_id)
        fail(Code::data, "tokenizer {}: expected end id {} and pad id {} as T5 has, found {} and {}", model_.string(),
             end_id, pad_id, processor_.eos_id(), processor_.pad_id());
    });
    return processor_;
  }

  std::filesystem::path model_;
  mutable std::once_flag loaded_;
  mutable sentencepiece::SentencePieceProcessor processor_;
};

}  // namespace

std::unique_ptr<Tokenizer> make_t5_tokenizer(const std::filesystem::path& spiece_model) {
  return std::make_unique<T5Tokenizer>(spiece_model);
}

}  // namespace lh
