// The sentencepiece library on a model's own file.
#include <sentencepiece_processor.h>

#include "core/error.h"
#include "data/token_model.h"

namespace lh {
namespace {

class SentencePiece : public TokenModel {
 public:
  explicit SentencePiece(const SourceFile& file) {
    if (const std::string why = load(file.bytes); !why.empty())
      fail(Code::data, "tokenizer {}: not a sentencepiece model (install it anew): {}", file.path.string(), why);
  }

  std::vector<int32_t> ids(const std::string& utf8) const override {
    std::vector<int> pieces;
    if (const auto status = processor_.Encode(utf8, &pieces); !status.ok())
      fail(Code::data, "tokenizer: sentencepiece cannot encode a text of {} bytes: {}", utf8.size(), status.ToString());
    return {pieces.begin(), pieces.end()};
  }

  std::optional<int32_t> id_of(const std::string& token) const override {
    const int id = processor_.PieceToId(token);
    if (!has(id) || processor_.IdToPiece(id) != token) return std::nullopt;  // the unknown token's
    return id;
  }
  bool has(int32_t id) const override { return id >= 0 && id < processor_.GetPieceSize(); }

 private:
  // Why the library does not take it; empty: it does. Of some files it throws.
  std::string load(const std::string& bytes) {
    try {
      const auto status = processor_.LoadFromSerializedProto(bytes);
      return status.ok() ? "" : status.ToString();
    } catch (const std::exception& error) {
      return error.what();
    }
  }

  sentencepiece::SentencePieceProcessor processor_;
};

}  // namespace

std::unique_ptr<TokenModel> read_sentencepiece(const TokenizerSource& source) {
  return std::make_unique<SentencePiece>(source.files.front());
}

}  // namespace lh
