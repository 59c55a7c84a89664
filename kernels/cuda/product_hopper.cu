// Which tiles a product and its share take, and whether: product_tiles.cuh makes them.
#include <algorithm>
#include <limits>
#include <optional>

#include "cuda/product_hopper.h"
#include "cuda/product_tiles.cuh"
#include "cuda/tensor_map.h"

namespace lk::cuda {

namespace {

using namespace product;

constexpr int widest = 256;            // tile, in columns
constexpr int activated_depth = 2048;  // of the sum, at least

// Of a matrix [rows, cols].
CUtensorMap map_of(const void* data, lk_dtype dtype, int64_t rows, int64_t cols, int64_t pitch, int high) {
  return tensor_map<2>(data, dtype,
                       {.dims = {static_cast<cuuint64_t>(cols), static_cast<cuuint64_t>(rows)},
                        .pitches = {static_cast<cuuint64_t>(pitch) * 2},
                        .box = {line, static_cast<cuuint32_t>(high)}});
}

template <int Layers>
struct Tile {
  int cols;
  void (*kernel)(Problem<Layers>, Maps<Layers>);
  size_t shared;
};
template <class T, int Cols, int Layers>
auto kernel_of(bool across, bool activates) {
  if constexpr (Layers == 1)
    if (activates) return product_kernel<T, Cols, false, true, 1>;
  return across ? product_kernel<T, Cols, true, false, Layers> : product_kernel<T, Cols, false, false, Layers>;
}
template <int Cols, int Layers>
Tile<Layers> tile_of(lk_dtype type, bool across, bool activates) {
  const auto kernel = type == LK_BF16 ? kernel_of<__nv_bfloat16, Cols, Layers>(across, activates)
                                      : kernel_of<__half, Cols, Layers>(across, activates);
  return {Cols, kernel, sizeof(Shared<Cols>) + 1024};
}

// What one product in place of all would have.
GemmCall joined(SharedProducts layers) {
  GemmCall all = layers.front().product;
  for (const SharedProduct& layer : layers.subspan(1)) {
    if (all.transpose_b)
      all.n += layer.product.n;
    else
      all.k += layer.product.k;
  }
  return all;
}

template <int Layers>
struct Tiling {
  Tile<Layers> tile;
  int64_t rows, cols = 0, places;  // of clusters: tiles, and how many run at once, perhaps none
  Tiling(const Cuda& cuda, SharedProducts layers, const Tile<Layers>& tile)
      : tile(tile),
        rows(ceil_div(layers.front().product.m, cluster * tile_rows)),
        places(cuda.clusters_at_once(reinterpret_cast<const void*>(tile.kernel), dim3(cluster), threads, tile.shared)) {
    for (const SharedProduct& layer : layers)
      if (cols == 0 || layer.product.transpose_b) cols += ceil_div(layer.product.n, tile.cols);
  }
  int64_t count() const { return rows * cols; }
  int64_t rounds() const { return ceil_div(count(), places); }
  // So much longer along the sum's axis all tiles could be if no place were empty in the last round.
  int64_t lost(const GemmCall& c) const { return c.k * (rounds() * places - count()) / count(); }
};

// Where it takes less time than the share's pass and a product of cuBLASLt's, which has tiles of more sizes. In steps
// along the sum's axis, as lost(): the pass writes and reads d, which takes some 400, and is a kernel more, 4 us or
// some 2^30 / (m n); tiles of 128 columns read more for each product and take about an eighth longer. Large products,
// whose rounds are many, stay with wide tiles or cuBLASLt by that. Several layers would have a kernel more each, and
// where they are summed a pass; of their tiles, which often fill places in either width, those that take less time. An
// activation would be a pass like that after it.
template <int Layers>
std::optional<Tiling<Layers>> tiling_of(const Cuda& cuda, SharedProducts layers) {
  const GemmCall c = joined(layers);
  const bool across = !c.transpose_b, activates = layers.front().activation.wanted();
  const auto count = static_cast<int64_t>(layers.size());
  const int64_t pass = (activates ? 800 : 400) * (across ? count : 1), kernel = count << 30;
  const Tiling<Layers> wide(cuda, layers, tile_of<256, Layers>(c.a_dtype, across, activates));
  const bool wide_fits = wide.places > 0 && wide.lost(c) <= pass;
  if (wide_fits && count == 1) return wide;
  const Tiling<Layers> narrow(cuda, layers, tile_of<128, Layers>(c.a_dtype, across, activates));
  const bool narrow_fits = narrow.places > 0 && narrow.lost(c) + c.k / 8 <= pass + kernel / (c.m * c.n);
  if (wide_fits && !(narrow_fits && narrow.rounds() * 9 < wide.rounds() * 16)) return wide;
  if (narrow_fits) return narrow;
  return {};
}

// Of what the product stores of d.
hopper::Beside beside_of(const GemmCall& c, const Activation& a) {
  return {.from = static_cast<const char*>(c.d) + a.from * lk_dtype_size(c.d_dtype),
          .to = a.data,
          .from_pitch = c.n,
          .to_pitch = a.pitch,
          .rows = static_cast<int>(c.m),
          .cols = static_cast<int>(c.n - a.from)};
}

// Whether the layer, without regard to its size, can be one of those whose type is `type`.
bool takes(const Cuda& cuda, const SharedProduct& p, lk_dtype type) {
  const GemmCall& c = p.product;
  const auto no = [&](const char* why) { return cuda.passes_over("own product with the share", why); };
  if (cuda.capability() != 90) return no("capability is not 9.0");
  if (type != LK_BF16 && type != LK_F16) return no("neither bf16 nor f16");
  if (c.a_dtype != type || c.b_dtype != type || c.d_dtype != type || p.z.dtype != type) return no("mixed types");
  if (c.a_factors != nullptr) return no("products of 8 bits");
  for (const int64_t width : {c.k, c.n, p.rank, p.z_pitch}) {
    if (width == 0 || width % 8 != 0) return no("widths and rank are not all multiples of 8");
  }
  if (p.rank > depth) return no("rank is over 64");  // the share is one part
  const Activation& activation = p.activation;
  if (activation.wanted()) {
    if (activation.type != type) return no("mixed types, or not gelu by tanh of even rows");
    if (activation.from % widest != 0) return no("a tile would be activated in part");
    if (activation.pitch % 8 != 0) return no("pitches are not all multiples of 8");
    // Measured at 4250 x 1536 -> 6144: what is beside the product then takes as long as the product.
    if (c.k < activated_depth) return no("the activation would take longer than the product beside it");
  }
  for (const void* data :
       {c.a, c.b, static_cast<const void*>(c.d), p.z.data, p.c, static_cast<const void*>(activation.data)}) {
    if (!cuda.measuring() && reinterpret_cast<uintptr_t>(data) % 16 != 0) return no("not aligned to 16 bytes");
  }
  if (std::max({c.m, c.n, c.k}) > std::numeric_limits<int>::max() / 16) return no("too large");
  return true;
}

template <int Layers>
bool suits(const Cuda& cuda, SharedProducts layers) {
  return tiling_of<Layers>(cuda, layers).has_value() ||
         cuda.passes_over("own product with the share",
                          "its blocks find no place, or leave too many empty in the last round");
}

template <int Layers>
void run(Cuda& cuda, SharedProducts layers) {
  const SharedProduct& p = layers.front();
  const GemmCall& c = p.product;
  const bool across = !c.transpose_b;
  const lk_dtype type = c.a_dtype;
  const Tiling<Layers> tiles = tiling_of<Layers>(cuda, layers).value();
  if (cuda.measuring()) return;
  // About as many rows as columns of tiles at a time, so that what they read stays in the cache; bands of equal height.
  const int64_t bands = ceil_div(tiles.rows, 8);
  Problem<Layers> problem{.rows = static_cast<int>(c.m),
                          .summed = across ? static_cast<int>(layers.size()) : 1,
                          .row_tiles = static_cast<int>(tiles.rows),
                          .col_tiles = static_cast<int>(tiles.cols),
                          .band = static_cast<int>(ceil_div(tiles.rows, bands)),
                          .adds = p.c != nullptr,
                          .activated_from = static_cast<int>(p.activation.from),
                          .beside = beside_of(c, p.activation)};
  Maps<Layers> maps{.c = map_of(p.c != nullptr ? p.c : c.d, type, c.m, c.n, c.n, group_rows)};
  for (int& first : problem.first) first = std::numeric_limits<int>::max();
  int64_t first = 0;
  for (size_t i = 0; i < layers.size(); ++i) {
    const GemmCall& own = layers[i].product;
    problem.bias[i] = {own.bias, own.bias_dtype};
    problem.cols[i] = static_cast<int>(own.n);
    problem.steps[i] = static_cast<int>(ceil_div(own.k, depth));
    problem.share[i] = static_cast<int>(ceil_div(layers[i].rank, 16));
    if (i == 0 || !across) problem.first[i] = static_cast<int>(first);
    first += ceil_div(own.n, tiles.tile.cols);
    // b and v as they lie: rows along the sum's axis or across it.
    const auto right = [&](const void* data, int64_t sum) {
      return across ? map_of(data, type, sum, own.n, own.n, box_rows)
                    : map_of(data, type, own.n, sum, sum, tiles.tile.cols / 2);
    };
    maps.of[i] = {.a = map_of(own.a, type, own.m, own.k, own.k, tile_rows),
                  .b = right(own.b, own.k),
                  .z = map_of(layers[i].z.data, type, own.m, layers[i].rank, layers[i].z_pitch, tile_rows),
                  .v = right(layers[i].v, layers[i].rank),
                  .d = map_of(own.d, type, own.m, own.n, own.n, group_rows)};
  }
  const auto clusters = static_cast<unsigned>(std::min(tiles.count(), tiles.places));
  cuda.launch(tiles.tile.kernel, dim3(clusters * cluster), threads, tiles.tile.shared, problem, maps);
}

}  // namespace

bool product_suits_hopper(const Cuda& cuda, SharedProducts layers) {
  for (const SharedProduct& layer : layers)
    if (!takes(cuda, layer, layers.front().product.a_dtype)) return false;
  return layers.size() == 1 ? suits<1>(cuda, layers) : suits<LK_LORA_GROUP_MAX>(cuda, layers);
}

void product_on_hopper(Cuda& cuda, SharedProducts layers) {
  layers.size() == 1 ? run<1>(cuda, layers) : run<LK_LORA_GROUP_MAX>(cuda, layers);
}

}  // namespace lk::cuda
