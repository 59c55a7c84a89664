// The images of a dataset before there are samples of them: found, with what belongs to each, and checked.
#pragma once

#include <exception>
#include <optional>
#include <string>
#include <vector>

#include "data/caption_rule.h"
#include "data/dataset.h"
#include "data/image_list.h"

namespace lh {

struct Candidate {
  ImageFile file;
  ImageFiles images;
  std::optional<SampleMask> mask;
  std::vector<std::string> texts;  // of which a rule makes captions
  bool captioned = false;          // they are its own
  std::string no_text;             // why they cannot be read
  bool animated = false;
  std::string corrupt;         // why it cannot be used
  std::string unreadable;      // why the file could not be read at all
  std::exception_ptr failure;  // anything else, such as memory
};

// The images of `list` with the names of further images and masks beside them, and their texts. section: of the
// dataset in the configuration. trigger_word: which `rule` has.
std::vector<Candidate> find_candidates(const DatasetConfig& config, const std::string& section, const ImageList& list,
                                       const CaptionRule& rule, const std::string& trigger_word, const ImageKeys& keys,
                                       std::vector<std::string>& problems);

// What images are known by.
struct KnownImages {
  const KnownGood& good;
  const OpenedImages& opened;
  SeenFiles* seen;
  const ImageKeys& keys;
};
// Fills in what the files of each say of themselves, or why it cannot be used. frames: as of SizeStep.
void check_candidates(const DatasetConfig& config, int64_t frames, const KnownImages& known,
                      std::vector<Candidate>& candidates);

// Sorts out what cannot be used: into problems, or with a warning into the count of skipped images.
void drop_unusable(const DatasetConfig& config, std::vector<Candidate>& candidates, bool warn, int64_t& skipped,
                   std::vector<std::string>& problems);

}  // namespace lh
