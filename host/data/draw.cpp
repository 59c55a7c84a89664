// The labelled grid of samples and the loss curve.
#include <algorithm>
#include <cmath>
#include <limits>

#include "core/error.h"
#include "data/canvas.h"
#include "data/image.h"

namespace lh {
namespace {

constexpr Colour ink{40, 40, 40}, faint{225, 225, 225}, pale{178, 203, 232}, dark{24, 80, 150};
constexpr int64_t max_canvas_pixels = 400'000'000;

struct Extent {
  double low = std::numeric_limits<double>::infinity(), high = -std::numeric_limits<double>::infinity();
  void add(double v) {
    low = std::min(low, v);
    high = std::max(high, v);
  }
  // Wide enough to divide by.
  void widen() {
    if (high > low) return;
    const double pad = std::max(std::abs(low) * 0.1, 1e-6);
    low -= pad;
    high += pad;
  }
};

// A step of 1, 2 or 5 times a power of ten that cuts the range into at most `parts`.
double tick_step(const Extent& range, int parts) {
  const double rough = (range.high - range.low) / parts, power = std::pow(10.0, std::floor(std::log10(rough)));
  for (const double factor : {1.0, 2.0, 5.0})
    if (factor * power >= rough) return factor * power;
  return 10.0 * power;
}

// Mean of up to `window` values ending at each.
std::vector<double> moving_average(const std::vector<std::pair<double, double>>& points, size_t window) {
  std::vector<double> mean(points.size());
  for (size_t i = 0; i < points.size(); ++i) {
    const size_t first = i + 1 >= window ? i + 1 - window : 0;
    double sum = 0;
    for (size_t j = first; j <= i; ++j) sum += points[j].second;
    mean[i] = sum / static_cast<double>(i + 1 - first);
  }
  return mean;
}

}  // namespace

Image image_grid(const std::vector<std::vector<Image>>& rows, const std::vector<std::string>& column_titles,
                 const std::vector<std::string>& row_titles) {
  int64_t cell_w = 0, cell_h = 0, columns = static_cast<int64_t>(column_titles.size());
  for (const auto& row : rows) {
    columns = std::max(columns, static_cast<int64_t>(row.size()));
    for (const Image& image : row) {
      cell_w = std::max(cell_w, image.width);  // an image without pixels is an empty place
      cell_h = std::max(cell_h, image.height);
    }
  }
  if (cell_w == 0) fail(Code::internal, "image grid: there is no image in it");

  const int64_t size = cell_w >= 384 ? 2 : 1, gap = 4 * size, height = line_height(size);
  const int64_t side = row_titles.empty() ? 0 : std::max<int64_t>(cell_w / 2, text_width("0123456789", size));
  const int64_t top = column_titles.empty() ? 0 : height;
  const auto row_count = static_cast<int64_t>(rows.size());
  const int64_t total_w = side + gap + columns * (cell_w + gap), total_h = top + gap + row_count * (cell_h + gap);
  if (total_w > max_canvas_pixels / total_h)
    fail(Code::resource, "image grid: {} x {} pixels are too many (limit {}); show fewer images", total_w, total_h,
         max_canvas_pixels);
  Canvas canvas(total_w, total_h);
  const int64_t char_width = text_width("0", size);
  for (size_t c = 0; c < column_titles.size(); ++c) {
    const auto lines = wrap(drawable(column_titles[c]), cell_w / char_width);
    if (lines.empty()) continue;
    const int64_t x = side + gap + static_cast<int64_t>(c) * (cell_w + gap);
    canvas.text(x + (cell_w - text_width(lines[0], size)) / 2, gap, lines[0], size, ink);
  }
  for (size_t r = 0; r < rows.size(); ++r) {
    const int64_t y = top + gap + static_cast<int64_t>(r) * (cell_h + gap);
    if (r < row_titles.size()) {
      const auto lines = wrap(drawable(row_titles[r]), (side - gap) / char_width);
      for (size_t i = 0; i < lines.size() && static_cast<int64_t>(i + 1) * height <= cell_h; ++i)
        canvas.text(gap, y + static_cast<int64_t>(i) * height, lines[i], size, ink);
    }
    for (size_t c = 0; c < rows[r].size(); ++c)
      canvas.paste(side + gap + static_cast<int64_t>(c) * (cell_w + gap), y, rows[r][c]);
  }
  return canvas.take();
}

Image line_chart(const std::vector<std::pair<double, double>>& points, const std::string& title) {
  constexpr int64_t width = 960, height = 540, left = 110, right = 24, top = 48, bottom = 44, size = 2;
  constexpr int64_t plot_w = width - left - right, plot_h = height - top - bottom;
  Canvas canvas(width, height);
  const std::string heading = drawable(title);
  canvas.text((width - text_width(heading, size)) / 2, 14, heading, size, ink);

  std::vector<std::pair<double, double>> shown;
  Extent xs, ys;
  for (const auto& [x, y] : points) {
    if (!std::isfinite(x) || !std::isfinite(y)) continue;
    shown.emplace_back(x, y);
    xs.add(x);
    ys.add(y);
  }
  if (shown.empty()) {
    const std::string text = "no data yet";
    canvas.text((width - text_width(text, size)) / 2, height / 2, text, size, ink);
    return canvas.take();
  }
  xs.widen();
  ys.widen();
  const auto px = [&](double x) { return left + std::llround((x - xs.low) / (xs.high - xs.low) * (plot_w - 1)); };
  const auto py = [&](double y) {
    return top + plot_h - 1 - std::llround((y - ys.low) / (ys.high - ys.low) * (plot_h - 1));
  };

  const double x_step = tick_step(xs, 8), y_step = tick_step(ys, 6);
  for (double k = std::ceil(ys.low / y_step); k * y_step <= ys.high; ++k) {
    const std::string label = fmt::format("{:.5g}", k * y_step);
    const int64_t y = py(k * y_step);
    canvas.fill(left, y, plot_w, 1, faint);
    canvas.text(left - 10 - text_width(label, size), y - 6, label, size, ink);
  }
  for (double k = std::ceil(xs.low / x_step); k * x_step <= xs.high; ++k) {
    const std::string label = fmt::format("{:.6g}", k * x_step);
    const int64_t x = px(k * x_step);
    canvas.fill(x, top, 1, plot_h, faint);
    canvas.text(x - text_width(label, size) / 2, top + plot_h + 12, label, size, ink);
  }
  canvas.fill(left, top, 1, plot_h, ink);
  canvas.fill(left, top + plot_h, plot_w, 1, ink);

  const size_t window = std::clamp<size_t>(shown.size() / 20, 1, 100);
  const std::vector<double> mean = moving_average(shown, window);
  for (size_t i = 0; i < shown.size(); ++i) {
    const auto& [x, y] = shown[i];
    const auto& [before_x, before_y] = shown[i == 0 ? 0 : i - 1];
    canvas.line(px(before_x), py(before_y), px(x), py(y), 1, pale);
  }
  for (size_t i = 0; i < shown.size(); ++i) {
    const size_t before = i == 0 ? 0 : i - 1;
    canvas.line(px(shown[before].first), py(mean[before]), px(shown[i].first), py(mean[i]), 2, dark);
  }
  return canvas.take();
}

}  // namespace lh
