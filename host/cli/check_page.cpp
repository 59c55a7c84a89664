// Sections from what stops the training to all pictures by bucket. The page loads nothing and runs nothing: its policy
// says so to the browser, whatever the names and captions are.
#include <fmt/core.h>

#include <algorithm>

#include "cli/check_report.h"
#include "cli/html.h"

namespace lh {
namespace {

constexpr const char* head = R"(<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; img-src data:; style-src 'unsafe-inline'">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{0}</title>
<style>
:root {{
  color-scheme: light dark;
  --page: #f5f5f7; --card: #fff; --text: #1c1c1f; --dim: #6b6b73; --line: #dcdce2; --accent: #2a66c8;
  --bad: #b3261e; --warn: #8a5300;
}}
@media (prefers-color-scheme: dark) {{
  :root {{
    --page: #161618; --card: #222226; --text: #ececf0; --dim: #9a9aa4; --line: #3a3a41; --accent: #7fb0ff;
    --bad: #ff8a80; --warn: #f0b254;
  }}
}}
* {{ box-sizing: border-box; }}
body {{ font: 15px/1.5 system-ui, sans-serif; margin: 0 auto; padding: 1.5rem 1.5rem 4rem; max-width: 84rem;
       background: var(--page); color: var(--text); overflow-wrap: anywhere; }}
h1 {{ font-size: 1.5rem; line-height: 1.25; margin: 0 0 1rem; }}
h2 {{ font-size: 1.15rem; margin: 2.5rem 0 .6rem; }}
h2::first-letter {{ text-transform: uppercase; }}
a {{ color: var(--accent); }}
table {{ border-collapse: collapse; }}
td, th {{ text-align: left; padding: .15em 1em .15em 0; vertical-align: top; }}
td:first-child {{ white-space: nowrap; }}
td.number {{ text-align: right; font-variant-numeric: tabular-nums; }}
.bar {{ background: var(--accent); height: .8em; display: inline-block; border-radius: .2em; }}
.stop {{ color: var(--bad); }}
.note {{ color: var(--warn); }}
.dim {{ color: var(--dim); }}
.cards {{ display: grid; grid-template-columns: repeat(auto-fill, 180px); gap: 1rem; margin: .8rem 0; align-items: start; }}
.card {{ font-size: 13px; background: var(--card); border: 1px solid var(--line); border-radius: .6rem; padding: 9px; }}
.frame {{ height: 160px; width: 160px; background: var(--page) center / auto no-repeat; border-radius: .3rem; }}
.card p {{ margin: .3em 0 0; }}
.caption {{ max-height: 6em; overflow: auto; }}
.group {{ border: 1px dashed var(--line); border-radius: .8rem; padding: 0 1rem; margin: .8rem 0; }}
{1}</style></head><body>
<h1>{0}</h1>
)";

// Of a finding's section: "finding-3".
std::string id_of(const Bucket& bucket) { return fmt::format("b{}x{}x{}", bucket.width, bucket.height, bucket.frames); }

std::string id_of(Finding finding) { return fmt::format("finding-{}", static_cast<int>(finding)); }

class Page {
 public:
  Page(const DatasetCheck& check, const std::string& title) : check_(check) {
    // Each picture once, however often it is shown.
    std::string thumbnails;
    for (size_t i = 0; i < check.pictures.size(); ++i)
      if (const std::string& jpeg = check.pictures[i].thumbnail; !jpeg.empty())
        thumbnails += fmt::format(".p{} {{ background-image: url({}); }}\n", i, data_url("image/jpeg", jpeg));
    out_ = fmt::format(head, html_text(title), thumbnails);
  }

  std::string write() {
    summary();
    list("What stops the training", "stop", check_.problems);
    buckets();
    groups("Files with the same bytes", Finding::same, check_.same);
    groups("Pictures that look the same", Finding::alike, check_.alike);
    for (const Finding finding : all_findings)
      if (finding != Finding::same && finding != Finding::alike) of_finding(finding);
    list("Files that are not read", "dim", check_.not_read);
    all();
    return out_ + "</body></html>\n";
  }

 private:
  template <typename... Args>
  void add(fmt::format_string<Args...> format, Args&&... args) {
    out_ += fmt::format(format, std::forward<Args>(args)...);
  }

  void summary() {
    add("<table>\n<tr><td>datasets<td>");
    for (const DatasetConfig& dataset : check_.datasets) {
      std::string sizes;
      for (const int64_t resolution : dataset.resolution)
        sizes += fmt::format("{}{}", sizes.empty() ? "" : ", ", resolution);
      add("{} <span class=dim>at {}</span><br>", html_text(dataset.folder_path.string()), sizes);
    }
    add("\n<tr><td>pictures<td>{}, of which {} are trained on", check_.pictures.size(), check_.trained_on());
    if (check_.validation > 0) add("; {} samples are set apart for validation", check_.validation);
    add("\n<tr><td>epoch<td>{} batches\n", check_.batches);
    for (const Finding finding : all_findings)
      if (check_.count(finding) > 0)
        add("<tr><td><a class=note href=\"#{0}\">{1}</a><td>{2}\n", id_of(finding), name_of(finding),
            check_.count(finding));
    add("</table>\n");
    for (const std::string& remark : check_.remarks) add("<p class=note>{}</p>\n", html_text(remark));
  }

  void list(const char* title, const char* style, const std::vector<std::string>& lines) {
    if (lines.empty()) return;
    add("<h2>{}</h2>\n<ul class={}>\n", title, style);
    for (const std::string& line : lines) add("<li>{}\n", html_text(line));
    add("</ul>\n");
  }

  void buckets() {
    if (check_.buckets.empty()) return;
    int64_t most = 1;
    for (const auto& [bucket, samples] : check_.buckets) most = std::max(most, samples);
    add("<h2>Buckets</h2>\n<table><tr><th>size<th>samples an epoch<th>\n");
    for (const auto& [bucket, samples] : check_.buckets)
      add("<tr><td><a href=\"#{}\">{}</a><td class=number>{}<td><span class=bar "
          "style=\"width:{:.1f}em\"></span>\n",
          id_of(bucket), text_of(bucket), samples, 20.0 * static_cast<double>(samples) / static_cast<double>(most));
    add("</table>\n");
  }

  void card(size_t index) {
    const CheckedPicture& picture = check_.pictures[index];
    add("<div class=card><div class=\"frame p{}\"></div><p><b>{}</b></p><p class=dim>{} x {}", index,
        html_text(check_.name(index)), picture.size.width, picture.size.height);
    for (const Bucket& bucket : picture.buckets) add(" &rarr; {}", text_of(bucket));
    if (picture.validation) add(" (validation)");
    add("</p>");
    for (const CheckedPicture::Note& note : picture.notes)
      add("<p class={}>{}: {}</p>", note.stops ? "stop" : "note", name_of(note.finding), html_text(note.text));
    if (!picture.caption.empty()) {
      add("<p class=caption>{}</p><p class=dim>{} words", html_text(picture.caption), picture.words);
      for (const auto& [encoder, tokens] : picture.tokens) add(", {} tokens of {}", tokens, html_text(encoder));
      add("</p>");
    }
    add("</div>\n");
  }

  void groups(const char* title, Finding finding, const std::vector<std::vector<size_t>>& groups) {
    if (groups.empty()) return;
    add("<h2 id=\"{}\">{}</h2>\n", id_of(finding), title);
    for (const std::vector<size_t>& group : groups) {
      add("<div class=group><div class=cards>\n");
      for (const size_t picture : group) card(picture);
      add("</div></div>\n");
    }
  }

  void of_finding(Finding finding) {
    if (check_.count(finding) == 0) return;
    add("<h2 id=\"{}\">{}</h2>\n<p>{}</p>\n<div class=cards>\n", id_of(finding), name_of(finding), meaning_of(finding));
    for (size_t i = 0; i < check_.pictures.size(); ++i)
      if (check_.pictures[i].has(finding)) card(i);
    add("</div>\n");
  }

  void all() {
    for (const auto& [bucket, samples] : check_.buckets) {
      add("<h2 id=\"{}\">{}</h2>\n<div class=cards>\n", id_of(bucket), text_of(bucket));
      for (size_t i = 0; i < check_.pictures.size(); ++i)
        if (check_.pictures[i].buckets.contains(bucket)) card(i);
      add("</div>\n");
    }
  }

  const DatasetCheck& check_;
  std::string out_;
};

}  // namespace

std::string check_page(const DatasetCheck& check, const std::string& title) { return Page(check, title).write(); }

}  // namespace lh
