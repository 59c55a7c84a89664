// What a model's encoders are given: a text, and for models of which one sees (Recipe::pictures), the pictures that it
// is shown, beside the text or alone.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "core/tensor.h"
#include "data/sample.h"
#include "plugin/recipe.h"

namespace lh {

// By input of the conditioner's graph, in the recipe's order: the size that each picture is shown at, in pixels.
using PictureSizes = std::map<std::string, Bucket>;

struct Prompt {
  Prompt(std::string words) : text(std::move(words)) {}
  Prompt(const char* words) : text(words) {}
  // own: how the sample's image is cut, and its further images with it.
  Prompt(const Recipe& recipe, std::string words, const ImageFiles& images, const ImageCut& own);

  std::string text;
  std::map<std::string, ImageCut> pictures;  // by input of the conditioner's graph
  bool negative = false;                     // in TokenizerSpec::negative_text
  // Two prompts with the same are encoded alike.
  std::string identity() const;
};

// Those of a prompt; squares where it has none, as for a bench.
PictureSizes picture_sizes(const Recipe& recipe, const Prompt& prompt);
// How many places among the tokens each picture has, in the template's order.
std::vector<int64_t> picture_places(const Recipe& recipe, const std::string& encoder, const PictureSizes& sizes);
// Tokens of a text of that encoder, those places among them.
int64_t tokens_with_pictures(const Recipe& recipe, const std::string& encoder, const PictureSizes& sizes);
// What the conditioner's graph is told of them; at: the row of each one's first place, of those that have places.
std::map<std::string, int64_t> picture_dimensions(const PictureSizes& sizes, const std::map<std::string, int64_t>& at);
// float32 [1, height, width, 3] in [-1, 1]. Of a clip that is its first frame.
HostTensor picture(const PictureSpec& spec, const ImageCut& cut);

}  // namespace lh
