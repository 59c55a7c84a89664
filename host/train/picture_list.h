// Which images a run is trained on, small enough to be kept with its state: so that what was edited can be said by
// name.
#pragma once

#include <string>

#include "data/dataset.h"

namespace lh {

// By content, so that a folder may move: names, and digests of captions and of all that is set for an image.
std::string picture_list(const Dataset& dataset);

// "3 images removed: a.jpg, ...; captions changed of 1 image: b.jpg", of two such lists. Empty where they are the same.
// Throws nothing: a list that cannot be read says that there is none.
std::string changes_of_pictures(const std::string& then, const std::string& now);

}  // namespace lh
