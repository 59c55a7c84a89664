// How a picture or a clip was made, as reports of files have it.
#pragma once

#include <string>

namespace lh {

// Lines for people; parameters: in the words of the program that made it, empty where the file says nothing.
std::string made_with(const std::string& parameters);

}  // namespace lh
