#include "cli/picture_files.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>

#include "core/error.h"
#include "core/lower.h"
#include "data/image_formats.h"
#include "data/video.h"
#include "io/file.h"

namespace lh {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view name_in_folder = "sample_";

// One behind the highest number that a picture in the folder has.
int64_t next_number(const fs::path& folder) {
  int64_t next = 0;
  for (const auto& entry : fs::directory_iterator(folder)) {
    const std::string extension = entry.path().extension().string(), stem = entry.path().stem().string();
    if (std::ranges::find(sample_extensions, extension) == std::end(sample_extensions) ||
        !stem.starts_with(name_in_folder))
      continue;
    int64_t number = 0;
    const char* end = stem.data() + stem.size();
    const auto [stop, error] = std::from_chars(stem.data() + name_in_folder.size(), end, number);
    if (error == std::errc() && stop == end && number < INT64_MAX) next = std::max(next, number + 1);
  }
  return next;
}

bool is_there(const fs::path& path) {
  std::error_code none;
  return fs::exists(fs::symlink_status(path, none));
}

std::string_view written_as(SampleKind kind) {
  switch (kind) {
    case SampleKind::image: return "images are written as PNG";
    case SampleKind::clip: return "clips are written as animated WebP";
    case SampleKind::clip_with_sound: break;
  }
  return "clips with sound are written as MP4";
}

}  // namespace

PictureFiles::PictureFiles(fs::path out, const std::vector<SampleRequest>& requests, bool force)
    : out_(out.empty() ? fs::path(".") : std::move(out)),
      in_folder_(fs::is_directory(out_) || !(is_any_image_name(out_) || is_video_name(out_))),
      several_(requests.size() > 1),
      force_(force) {
  // A file's name of another format is no folder.
  for (const SampleRequest& request : requests)
    if (const std::string_view written = sample_extension(request.kind());
        !in_folder_ && lower(out_.extension().string()) != written)
      fail(Code::config, "--out {}: {}. Give a name that ends in {}, or a folder", out_.string(),
           written_as(request.kind()), written);
  if (in_folder_) {
    make_folder(out_);
    if (!force_) first_ = next_number(out_);
    return;
  }
  if (out_.has_parent_path()) make_folder(out_.parent_path());
  std::vector<std::string> taken;
  for (size_t i = 0; !force_ && i < requests.size(); ++i)
    if (const fs::path name = path(static_cast<int64_t>(i), requests[i].kind()); is_there(name))
      taken.push_back(name.string());
  if (!taken.empty())
    fail(Code::config,
         "--out {}: {} there already. Give another name, a folder, in which pictures are numbered, or --force to "
         "replace {}",
         fmt::join(taken, ", "), taken.size() == 1 ? "is" : "are", taken.size() == 1 ? "it" : "them");
}

fs::path PictureFiles::path(int64_t number, SampleKind kind) const {
  const std::string_view extension = sample_extension(kind);
  if (in_folder_) return out_ / fmt::format("{}{}{}", name_in_folder, number, extension);
  if (!several_) return out_;
  return out_.parent_path() / fmt::format("{}_{}{}", out_.stem().string(), number, extension);
}

fs::path PictureFiles::write(size_t index, const Sampled& sampled) {
  for (;; ++first_) {  // another program may have taken a number meanwhile
    fs::path name = path(first_ + static_cast<int64_t>(index), sampled.kind());
    if (force_)
      write_sample(name, sampled);
    else if (!write_new_sample(name, sampled)) {
      if (in_folder_) continue;
      fail(Code::resource, "{}: was made by another program meanwhile, and stays. Give another name", name.string());
    }
    return name;
  }
}

}  // namespace lh
