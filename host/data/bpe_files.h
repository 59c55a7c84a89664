// The vocabulary and merges of byte-pair encoding, from the files they are distributed in.
#pragma once

#include "data/bpe.h"
#include "data/json_part.h"
#include "data/token_model.h"

namespace lh {

// The member `model` of a tokenizer.json with its own `vocab` and `merges`.
Bpe read_bpe_model(const JsonPart& model);
// The same member without them (`rules`), with the vocabulary and merges of two files. They must have as many `tokens`
// and merges as these numbers say; 0 = any.
Bpe read_bpe_model(const JsonPart& model, const SourceFile& vocabulary, const SourceFile& merges, int64_t tokens,
                   int64_t merge_count);

}  // namespace lh
