// Mutations that know what inputs are made of, beside those of bytes: text of numbers, words and brackets (JSON, YAML,
// lines), and safetensors files as inputs spell them (fuzz.h). Each gives one edit; none knows what a reader checks.
#pragma once

#include <random>
#include <string>

namespace lh::fuzz {

using Random = std::minstd_rand;

// 0 to count - 1; 0 where there is none.
size_t below(size_t count, Random& random);

// A number becomes one at an edge of 8 to 64 bits, a word another word of the text or a path elsewhere; an item between
// brackets, or a line, is written twice, once more under another name, left out or exchanged
// with its neighbour; a value is put into many brackets.
std::string edit_text(const std::string& text, Random& random);

// An edit of the header as text, of a shape whose size comes to an edge, or of the data as numbers of a type. Half of
// the files are then mended: what tensors say they need is what their offsets and the file give, where that is little.
std::string edit_safetensors(const std::string& spelled, Random& random);

// The same behind a first byte that says how the input is made (record_target.cpp).
std::string edit_sealed(const std::string& input, Random& random);

}  // namespace lh::fuzz
