// Masks for models that paint parts of an image anew.
#pragma once

#include <cstdint>
#include <vector>

#include "data/sample.h"

namespace lh {

// Of a cut with such a mask: 1 for pixels that are painted anew, 0 for those that stay, [height, width], mirrored as
// the cut is. In a file those are painted whose grey (ITU-R 601) is 128 or more.
//
// Masks that are drawn follow from the image's content and their number. A quarter of them is the whole image, the
// others are rectangles and ellipses of any size, as in diffusers' examples of such trainings.
std::vector<uint8_t> inpaint_mask(const ImageCut& cut);

}  // namespace lh
