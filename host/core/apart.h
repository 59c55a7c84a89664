// Foreign code in a process of its own first: what would end, hang or bend this one is told as an error instead.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

namespace lh {

// Runs the body in a child of this process, as it is now, and gives the text that the body gives. Throws what the body
// throws as an lh::Error of the same code, and an lh::Error(Code::plugin) that begins with `name` where the child
// crashes, ends the process, does not end within `seconds`, or leaves the process changed: folder, umask, locale,
// signal handlers, or how floating-point numbers are computed. To be called before there are threads.
std::string run_apart(const std::string& name, double seconds, const std::function<std::string()>& body);

// What became of one of several tasks: its answer, or why there is none.
struct ApartAnswer {
  std::string text;
  std::string failure;  // empty where there is an answer
};
// The body for each task 0, 1, ... in turn, in so many children at a time, and what it gives. A task that throws,
// crashes, ends its process or takes longer than `seconds` is a failure of its own: the others go on. To be called
// while there are no other threads.
std::vector<ApartAnswer> each_apart(size_t tasks, size_t children, double seconds,
                                    const std::function<std::string(size_t)>& body);

// "crashed with signal 11 (Segmentation fault)": how a child ended, by what wait() says of it.
std::string how_it_ended(int wait_status);

}  // namespace lh
