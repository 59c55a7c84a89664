// What somebody should know of their training data before they train: which pictures are left out and why, which are
// there twice, which are small, oddly shaped or badly captioned, and what buckets they make.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "data/dataset.h"
#include "data/examine.h"

namespace lh {

class Tokenizer;

enum class Finding { unusable, no_caption, empty_caption, long_caption, same, alike, small, odd_shape, cropped };
inline constexpr Finding all_findings[] = {Finding::unusable,     Finding::no_caption, Finding::empty_caption,
                                           Finding::long_caption, Finding::same,       Finding::alike,
                                           Finding::small,        Finding::odd_shape,  Finding::cropped};
std::string_view name_of(Finding finding);     // "same"
std::string_view meaning_of(Finding finding);  // "Files with the same bytes: ..."

struct CheckedPicture {
  struct Note {
    Finding finding;
    std::string text;
    bool stops = false;  // the training is refused for it
  };
  size_t dataset = 0;
  std::filesystem::path path;
  ImageSize size;
  std::set<Bucket> buckets;               // one for each resolution; none where it is left out
  std::string caption;                    // as the first use has it, nothing being drawn
  int64_t words = 0;                      // of its longest text
  std::map<std::string, int64_t> tokens;  // likewise, by text encoder
  bool validation = false;
  std::vector<Note> notes;
  std::string thumbnail;  // JPEG, of what can be decoded
  bool has(Finding finding) const;
};

struct DatasetCheck {
  std::vector<DatasetConfig> datasets;           // class folders being datasets of their own
  std::vector<CheckedPicture> pictures;          // by dataset and name
  std::vector<std::vector<size_t>> same, alike;  // groups of pictures
  std::map<Bucket, int64_t> buckets;             // samples of an epoch
  int64_t batches = 0;                           // likewise; 0 where there is nothing to train on
  int64_t validation = 0;                        // samples set apart
  std::vector<std::string> not_read;             // files of image formats that are not read
  std::vector<std::string> problems;             // for which the training is refused
  std::vector<std::string> remarks;
  std::string name(size_t picture) const;  // within the folder of its dataset
  int64_t trained_on() const;
  int64_t count(Finding finding) const;
};

// A text encoder's tokenizer.
struct TextReader {
  std::string encoder;
  const Tokenizer* tokenizer = nullptr;
  int64_t length = 0;  // tokens it takes
};

struct CheckRequest {
  std::vector<DatasetConfig> datasets;
  DatasetDefaults defaults;
  SizeStep step = {16, 1};
  ImageKeys image_keys;  // of further images that the model is given
  ValidationSplit split;
  std::vector<TextReader> readers;  // of the model; none: words are counted
  Examination examination = usual_examination();
};
// To be called while there are no other threads.
DatasetCheck check_dataset(const CheckRequest& request);

}  // namespace lh
