// Which tiles a product and its share take, and whether: product_tiles.cuh and product_through.cuh make them.
#include <algorithm>
#include <limits>
#include <optional>
#include <utility>

#include "cuda/product_hopper.h"
#include "cuda/product_problem.cuh"
#include "cuda/skinny.h"
#include "cuda/tensor_map.h"

namespace lk::cuda {

namespace {

using namespace product;

constexpr int widest = 256;            // tile, in columns
constexpr int activated_depth = 2048;  // of the sum, at least

// Of a matrix [rows, cols].
CUtensorMap map_of(const void* data, lk_dtype dtype, int64_t rows, int64_t cols, int64_t pitch, int high,
                   int wide = line) {
  return tensor_map<2>(data, dtype,
                       {.dims = {static_cast<cuuint64_t>(cols), static_cast<cuuint64_t>(rows)},
                        .pitches = {static_cast<cuuint64_t>(pitch) * 2},
                        .box = {static_cast<cuuint32_t>(wide), static_cast<cuuint32_t>(high)}});
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
  int64_t rows, cols = 0, pairs, places;  // of clusters: tiles, those that gate, and how many run at once, perhaps none
  Tiling(const Cuda& cuda, SharedProducts layers, const Tile<Layers>& tile)
      : tile(tile),
        rows(ceil_div(layers.front().product.m, cluster * tile_rows)),
        pairs(rows * (layers.front().activation.gates / tile.cols)),
        places(cuda.clusters_at_once(reinterpret_cast<const void*>(tile.kernel), dim3(cluster), threads, tile.shared)) {
    for (const SharedProduct& layer : layers)
      if (cols == 0 || layer.product.transpose_b) cols += ceil_div(layer.product.n, tile.cols);
  }
  int64_t count() const { return rows * cols; }
  int64_t rounds() const { return std::max(ceil_div(count(), places), 2 * ceil_div(pairs, places)); }
};

// The time of all in units of what a product of d's size takes for one of k, if every processor multiplies all the
// time. Tiles without all their columns and places without a tile in the last round multiply nothing. And a part of 64
// takes 4 cycles a column, but what it moves through shared memory, 128 bytes a cycle: a's rows come and are read once,
// 256 cycles, b's columns come once, in whole lines where they lie across, and are read by both warpgroups. Where z is
// made, with a rank of 16 or 32, w is more columns of b, which come in float32 and are rounded, and fewer parts are on
// their way.
template <int Layers>
double time_of(const GemmCall& c, const Tiling<Layers>& tiling, int64_t made_rank) {
  const int cols = tiling.tile.cols, come = c.transpose_b ? cols : static_cast<int>(ceil_div(cols, line)) * line;
  const int rank = static_cast<int>(made_rank), multiplied = cols + rank, w = rank * 5 / 2;
  const double cycles = std::max(4 * multiplied, 256 + 2 * multiplied + come + w) * (rank > 0 ? 1.1 : 1);
  const double made = static_cast<double>(tiling.rounds() * tiling.places) * cluster * tile_rows * cycles / 4;
  return static_cast<double>(c.k) * made / static_cast<double>(ceil_div(c.m, tile_rows) * tile_rows * c.n);
}

// And of passes that write the shares, or activate, and cuBLASLt's products. In these units such a pass, which reads
// and writes d, takes some 500, and the launch of a kernel 4 us. The constants are those by which the choice was best
// for the layers of all models at 512 and 1024 pixels (docs/performance_log.md).
double time_apart(const GemmCall& c, int64_t layers, bool activates) {
  const bool across = !c.transpose_b;
  const double group = layers > 1 ? 1.05 : 1, passes = (activates ? 2 : 1) * (across ? static_cast<double>(layers) : 1);
  return 1.05 * group * static_cast<double>(c.k) + 500 * passes +
         static_cast<double>(layers) * 0x1p31 / (static_cast<double>(c.m) * static_cast<double>(c.n));
}

// What it takes to make z apart, which all but the tiles that make it need: two kernels, and reading every a.
double time_of_projecting(const GemmCall& c, int64_t layers) {
  const double reading = 350 * static_cast<double>(c.k) / static_cast<double>(c.n);
  return 3 * 0x1p29 / (static_cast<double>(c.m) * static_cast<double>(c.n)) +
         reading * static_cast<double>(c.transpose_b ? layers : 1);
}

template <int Layers>
struct Choice {
  Shares shares = Shares::apart;
  std::optional<Tiling<Layers>> tiling;
};

// The tiles that take the least time, if that is less than what it takes without them.
template <int Layers>
Choice<Layers> choice_of(const Cuda& cuda, SharedProducts layers, bool can_make) {
  const GemmCall c = joined(layers);
  const auto count = static_cast<int64_t>(layers.size());
  const bool across = !c.transpose_b, activates = layers.front().activation.wanted();
  const int64_t rank = padded_rank(layers.front().rank);
  const double projecting = can_make ? time_of_projecting(c, count) : 0;
  double least = time_apart(c, count, activates) + projecting;
  Choice<Layers> best;
  const auto consider = [&](const Tile<Layers>& tile, Shares shares) {
    if (tile.kernel == nullptr) return;
    const Tiling<Layers> tiling(cuda, layers, tile);
    if (tiling.places == 0) return;
    const double time = shares == Shares::made ? time_of(c, tiling, rank) : time_of(c, tiling, 0) + projecting;
    if (time >= least) return;
    least = time;
    best = {shares, tiling};
  };
  const auto consider_all = [&]<int... Cols>(std::integer_sequence<int, Cols...>) {
    for (const Tile<Layers>& tile : {tile_of<Cols, Layers>(c.a_dtype, across, activates)...})
      consider(tile, Shares::given);
  };
  const auto consider_making = [&]<int... Cols>(std::integer_sequence<int, Cols...>) {
    for (const Tile<Layers>& tile : {through_tile_of<Cols, Layers>(c.a_dtype, across, rank)...})
      consider(tile, Shares::made);
  };
  if (activates)
    consider_all(std::integer_sequence<int, 256, 128>());
  else
    consider_all(std::integer_sequence<int, 256, 208, 192, 160, 128, 96>());
  if (can_make) consider_making(std::integer_sequence<int, 160, 128, 96>());
  return best;
}

// Of what the products store of d.
hopper::Beside beside_of(SharedProducts layers) {
  const GemmCall& c = layers.front().product;
  const Activation& a = layers.front().activation;
  const auto columns = [&](int64_t from) { return static_cast<const char*>(c.d) + from * lk_dtype_size(c.d_dtype); };
  const void* const behind = layers.size() > 1 ? layers[1].product.d : columns(a.from + a.gates);
  return {.from = columns(a.from),
          .gated = a.gates > 0 ? behind : nullptr,
          .to = a.data,
          .from_pitch = c.n,
          .to_pitch = a.pitch,
          .rows = static_cast<int>(c.m),
          .cols = static_cast<int>(a.gates > 0 ? a.gates : c.n - a.from)};
}

// Whether the layer, without regard to its size, can be one of those whose type is `type`.
bool takes(const Cuda& cuda, const SharedProduct& p, lk_dtype type) {
  const GemmCall& c = p.product;
  const auto no = [&](const char* why) { return cuda.passes_over("own product with the share", why); };
  if (cuda.capability() != 90) return no("capability is not 9.0");
  if (type != LK_BF16 && type != LK_F16) return no("neither bf16 nor f16");
  if (c.a_dtype != type || c.b_dtype != type || c.d_dtype != type || p.z.dtype != type) return no("mixed types");
  if (c.a_factors != nullptr) return no("products of 8 bits");
  for (const int64_t width : {c.k, c.n})
    if (width == 0 || width % 8 != 0) return no("widths are not all multiples of 8");
  if (p.rank > 2 * depth) return no("rank is over 128");
  const Activation& activation = p.activation;
  if (activation.wanted()) {
    if (activation.type != type) return no("mixed types, or neither gelu by tanh nor a gate of silu, of even rows");
    if (activation.from % widest != 0 || activation.gates % widest != 0) return no("a tile would be activated in part");
    if (activation.pitch % 8 != 0) return no("pitches are not all multiples of 8");
    // Measured at 4250 x 1536 -> 6144: what is beside the product then takes as long as the product.
    if (c.k < activated_depth) return no("the activation would take longer than the product beside it");
  }
  for (const void* data : {c.a, c.b, static_cast<const void*>(c.d), static_cast<const void*>(p.z.data), p.c,
                           static_cast<const void*>(activation.data)}) {
    if (!cuda.measuring() && reinterpret_cast<uintptr_t>(data) % 16 != 0) return no("not aligned to 16 bytes");
  }
  if (std::max({c.m, c.n, c.k}) > std::numeric_limits<int>::max() / 16) return no("too large");
  return true;
}

// Whether it can make z too.
bool makes(const Cuda& cuda, const SharedProduct& p) {
  const Projection& projection = p.projection;
  const auto no = [&](const char* why) { return cuda.passes_over("own product that projects", why); };
  if (projection.w == nullptr) return no("a mask, or adapters that are not float32");
  if (p.rank > most_made || p.rank % 4 != 0) return no("rank is over 32, or no multiple of 4");
  if (p.activation.wanted()) return no("an activation");
  for (const float* data : {projection.w, projection.v})
    if (!cuda.measuring() && reinterpret_cast<uintptr_t>(data) % 16 != 0) return no("not aligned to 16 bytes");
  return true;
}

bool all_make(const Cuda& cuda, SharedProducts layers) {
  return std::all_of(layers.begin(), layers.end(), [&](const SharedProduct& layer) { return makes(cuda, layer); });
}

template <int Layers>
Shares suits(const Cuda& cuda, SharedProducts layers) {
  const bool can_make = all_make(cuda, layers);
  const Shares shares = choice_of<Layers>(cuda, layers, can_make).shares;
  if (shares == Shares::apart)
    cuda.passes_over("own product with the share",
                     "its blocks find no place, or leave too many empty in the last round");
  if (can_make && shares != Shares::made) cuda.passes_over("own product that projects", "it would take longer");
  return shares;
}

// The adapter's matrices where z is made, in float32 as they lie: the halves of parts that a block of a cluster loads
// for both, and of those nothing beyond the rank.
struct AdapterMaps {
  CUtensorMap w, v;
};
AdapterMaps adapter_maps(const SharedProduct& p, int tile_cols) {
  const int64_t k = p.product.k, n = p.product.n;
  const int rank = static_cast<int>(p.rank);
  const auto half = [](const float* data, int64_t rows, int64_t cols, int high, int wide) {
    return tensor_map<2>(data, LK_F32,
                         {.dims = {static_cast<cuuint64_t>(cols), static_cast<cuuint64_t>(rows)},
                          .pitches = {static_cast<cuuint64_t>(cols) * 4},
                          .box = {static_cast<cuuint32_t>(wide), static_cast<cuuint32_t>(high)}});
  };
  const float *const w = p.projection.w, *const v = p.projection.v;
  if (p.product.transpose_b) return {half(w, p.rank, k, rank / 2, depth), half(v, n, p.rank, tile_cols / 2, rank)};
  return {half(w, k, p.rank, depth / 2, rank), half(v, p.rank, n, rank / 2, tile_cols)};
}

template <int Layers>
void run(Cuda& cuda, SharedProducts layers, Shares shares) {
  const SharedProduct& p = layers.front();
  const GemmCall& c = p.product;
  const bool across = !c.transpose_b;
  const lk_dtype type = c.a_dtype;
  const bool made = shares == Shares::made;
  const Tiling<Layers> tiles = choice_of<Layers>(cuda, layers, made).tiling.value();
  if (cuda.measuring()) return;
  // About as many rows as columns of tiles at a time, so that what they read stays in the cache; bands of equal height.
  const int64_t bands = ceil_div(tiles.rows, 8);
  Problem<Layers> problem{.rows = static_cast<int>(c.m),
                          .summed = across ? static_cast<int>(layers.size()) : 1,
                          .row_tiles = static_cast<int>(tiles.rows),
                          .col_tiles = static_cast<int>(tiles.cols),
                          .band = static_cast<int>(ceil_div(tiles.rows, bands)),
                          .adds = p.c != nullptr,
                          .activated_from = static_cast<int>(p.activation.from / tiles.tile.cols),
                          .gates = static_cast<int>(p.activation.gates / tiles.tile.cols),
                          .beside = beside_of(layers)};
  // Boxes of what leaves the tile, and of what it is added to.
  const auto leaving = [&](const void* data, int64_t cols) {
    return map_of(data, type, c.m, cols, cols, group_rows, leaving_cols(tiles.tile.cols));
  };
  Maps<Layers> maps{.c = leaving(p.c != nullptr ? p.c : c.d, c.n)};
  for (int& first : problem.first) first = std::numeric_limits<int>::max();
  int64_t first = 0;
  for (size_t i = 0; i < layers.size(); ++i) {
    const GemmCall& own = layers[i].product;
    problem.bias[i] = {own.bias, own.bias_dtype};
    problem.cols[i] = static_cast<int>(own.n);
    problem.steps[i] = static_cast<int>(ceil_div(own.k, depth));
    problem.share[i] = static_cast<int>(std::min<int64_t>(ceil_div(layers[i].rank, 16), depth / 16));
    problem.more_share[i] = static_cast<int>(ceil_div(layers[i].rank, depth)) - 1;
    if (i == 0 || !across) problem.first[i] = static_cast<int>(first);
    first += ceil_div(own.n, tiles.tile.cols);
    // b and v as they lie, v with the zeros behind the rank: rows along the sum's axis or across it.
    const int64_t rank = even_pitch(layers[i].rank);
    const auto right = [&](const void* data, int64_t sum) {
      return across ? map_of(data, type, sum, own.n, own.n, box_rows)
                    : map_of(data, type, own.n, sum, sum, tiles.tile.cols / 2);
    };
    maps.of[i].a = map_of(own.a, type, own.m, own.k, own.k, tile_rows);
    maps.of[i].b = right(own.b, own.k);
    maps.of[i].d = leaving(own.d, own.n);
    if (made) {
      const Projection& from = layers[i].projection;
      const AdapterMaps adapter = adapter_maps(layers[i], tiles.tile.cols);
      maps.of[i].z = adapter.w;
      maps.of[i].v = adapter.v;
      problem.made[i] = {.z = layers[i].z.data,
                         .pitch = static_cast<int>(layers[i].z_pitch),
                         .rank = static_cast<int>(layers[i].rank),
                         .alpha = from.alpha,
                         .gain = from.gain};
    } else {
      const void* const z = layers[i].again != nullptr ? layers[i].again : layers[i].z.data;
      maps.of[i].z = map_of(z, type, own.m, rank, rank, tile_rows);
      maps.of[i].v = right(layers[i].v, across ? layers[i].rank : rank);
    }
  }
  // None without a tile: it would wait for what nobody stores.
  const auto clusters = static_cast<unsigned>(std::min(tiles.count() - tiles.pairs, tiles.places));
  cuda.launch(tiles.tile.kernel, dim3(clusters * cluster), threads, tiles.tile.shared, problem, maps);
}

}  // namespace

Shares shares_of(const Cuda& cuda, SharedProducts layers) {
  for (const SharedProduct& layer : layers)
    if (!takes(cuda, layer, layers.front().product.a_dtype)) return Shares::apart;
  return layers.size() == 1 ? suits<1>(cuda, layers) : suits<LK_LORA_GROUP_MAX>(cuda, layers);
}

void product_on_hopper(Cuda& cuda, SharedProducts layers, Shares shares) {
  layers.size() == 1 ? run<1>(cuda, layers, shares) : run<LK_LORA_GROUP_MAX>(cuda, layers, shares);
}

}  // namespace lk::cuda
