// Foreign code in a process of its own first: what would end, hang or bend this one is told as an error instead.
#pragma once

#include <functional>
#include <string>

namespace lh {

// Runs the body in a child of this process, as it is now, and gives the text that the body gives. Throws what the body
// throws as an lh::Error of the same code, and an lh::Error(Code::plugin) that begins with `name` where the child
// crashes, ends the process, does not end within `seconds`, or leaves the process changed: folder, umask, locale,
// signal handlers, or how floating-point numbers are computed. To be called before there are threads.
std::string run_apart(const std::string& name, double seconds, const std::function<std::string()>& body);

}  // namespace lh
