#include "lora/low_rank.h"

#include <cmath>

#include "core/random.h"
#include "lora/gram.h"

namespace lh {
namespace {

using Eigen::Index;
using Eigen::MatrixXd;
using Eigen::MatrixXf;
using Eigen::VectorXd;
using RowMajor = RowMajorMatrix;
using Stored = StoredMatrix;

constexpr Index short_side = 384;    // up to here a Gram matrix costs no more than the iteration
constexpr Index oversampling = 8;    // further columns of the iteration, as Halko et al. advise
constexpr Index first_columns = 64;  // of an iteration that has to hold a share
constexpr int64_t rounds = 4;        // of it; a change by training has a spectrum that falls slowly
constexpr double rounding = 1e-12;   // of a sum of squares, beside a share of exactly 1

Stored stored(std::span<const float> values, Index rows) {
  return {values.data(), rows, static_cast<Index>(values.size()) / rows};
}

std::vector<float> values_of(const RowMajor& matrix) { return {matrix.data(), matrix.data() + matrix.size()}; }

// How many of these are kept, the largest first; `all`: the sum of the squares of every singular value there is.
Index count_of(const VectorXd& values, double all, const RankChoice& choice) {
  Index count = values.size();
  if (choice.energy > 0) {
    double sum = 0;
    for (count = 0; count < values.size() && sum < choice.energy * all * (1 - rounding); ++count)
      sum += values[count] * values[count];
  }
  if (choice.rank > 0) count = std::min<Index>(count, choice.rank);
  return std::max<Index>(count, 1);
}

// left diag(values) right^T with the values shared out evenly. Singular vectors are known up to their signs: the
// largest number of each row on the right is positive.
LowRank shared_out(MatrixXd left, const VectorXd& values, MatrixXd right, double all) {
  const VectorXd roots = values.cwiseMax(0.0).cwiseSqrt();
  for (Index i = 0; i < right.cols(); ++i) {
    Index at = 0;
    right.col(i).cwiseAbs().maxCoeff(&at);
    if (right(at, i) < 0) right.col(i) *= -1, left.col(i) *= -1;
  }
  LowRank out;
  out.product = {values_of((left * roots.asDiagonal()).cast<float>()),
                 values_of((roots.asDiagonal() * right.transpose()).cast<float>()), values.size()};
  out.kept = all > 0 ? std::min(1.0, values.squaredNorm() / all) : 1;
  out.norm = std::sqrt(all);
  return out;
}

// Singular values, the largest first, of the eigenvalues of a Gram matrix.
VectorXd roots_of(const VectorXd& eigenvalues) { return eigenvalues.reverse().cwiseMax(0.0).cwiseSqrt(); }

// The norms of the columns, which are divided by them.
VectorXd normalised(MatrixXd& columns) {
  const VectorXd norms = columns.colwise().norm();
  for (Index i = 0; i < norms.size(); ++i)
    if (norms[i] > 0) columns.col(i) /= norms[i];
  return norms;
}

struct Qr {
  MatrixXd q, r;
};
Qr qr_of(const MatrixXd& matrix) {
  const Index side = std::min(matrix.rows(), matrix.cols());
  const Eigen::HouseholderQR<MatrixXd> qr(matrix);
  return {qr.householderQ() * MatrixXd::Identity(matrix.rows(), side),
          qr.matrixQR().topRows(side).triangularView<Eigen::Upper>()};
}

double square_sum(const Stored& matrix) {
  double sum = 0;
  for (Index r = 0; r < matrix.rows(); ++r) sum += matrix.row(r).cast<double>().squaredNorm();
  return sum;
}

// The part of the matrix on the first vectors, which are orthonormal, of its shorter side's space: a projection is
// exact, whatever is known of the singular values.
LowRank projected(const Stored& matrix, const MatrixXd& vectors, double all) {
  const bool tall = matrix.rows() >= matrix.cols();
  MatrixXd other = MatrixXd::Zero(std::max(matrix.rows(), matrix.cols()), vectors.cols());
  constexpr Index block = 512;
  for (Index first = 0; first < other.rows(); first += block) {
    const Index count = std::min(block, other.rows() - first);
    other.middleRows(first, count) =
        tall ? MatrixXd(matrix.middleRows(first, count).cast<double>() * vectors)
             : MatrixXd(matrix.middleCols(first, count).cast<double>().transpose() * vectors);
  }
  const VectorXd values = normalised(other);
  return tall ? shared_out(std::move(other), values, vectors, all) : shared_out(vectors, values, std::move(other), all);
}

LowRank by_gram(const Stored& matrix, double all, const RankChoice& choice) {
  const Eigen::SelfAdjointEigenSolver<MatrixXd> solver(gram(matrix));
  const Index count = count_of(roots_of(solver.eigenvalues()), all, choice);
  return projected(matrix, solver.eigenvectors().rightCols(count).rowwise().reverse(), all);
}

// The singular vectors of the largest values on the left, and these values, of the part that `columns` numbers find.
struct Found {
  MatrixXd left;
  VectorXd values;
};
Found iterated(const Stored& matrix, Index columns) {
  Random random(0, Purpose::adapter_init, 0, 0);  // any numbers do; these are the same every time
  MatrixXf start(matrix.cols(), columns);
  random.fill_normal({start.data(), static_cast<size_t>(start.size())});
  MatrixXf basis = orthonormal(matrix * start);  // [rows, columns]
  for (int64_t round = 0; round < rounds; ++round)
    basis = orthonormal(matrix * orthonormal(matrix.transpose() * basis));
  const MatrixXd inside = (basis.transpose() * matrix).cast<double>();
  const Eigen::SelfAdjointEigenSolver<MatrixXd> solver(inside * inside.transpose());
  // The float32 basis is orthonormal to its rounding; what is measured on it should not be off by that.
  const Qr exact = qr_of(basis.cast<double>() * solver.eigenvectors().rowwise().reverse());
  return {exact.q, roots_of(solver.eigenvalues())};
}

// Of the matrix on vectors of its rows' space, whichever side is shorter.
LowRank on_rows(const Stored& matrix, const MatrixXd& left, double all) {
  MatrixXd right = MatrixXd::Zero(matrix.cols(), left.cols());
  constexpr Index block = 512;
  for (Index first = 0; first < matrix.rows(); first += block) {
    const Index count = std::min(block, matrix.rows() - first);
    right += matrix.middleRows(first, count).cast<double>().transpose() * left.middleRows(first, count);
  }
  const VectorXd values = normalised(right);
  return shared_out(left, values, std::move(right), all);
}

}  // namespace

LowRank low_rank(const LoraProduct& product, const RankChoice& choice) {
  const Qr left = qr_of(stored(product.left, product.rows()).cast<double>()),
           right = qr_of(stored(product.right, product.rank).cast<double>().transpose());
  const MatrixXd core = left.r * right.r.transpose();
  const double all = core.squaredNorm();
  const Eigen::SelfAdjointEigenSolver<MatrixXd> solver(core.transpose() * core);
  const Index count = count_of(roots_of(solver.eigenvalues()), all, choice);
  const MatrixXd on_right = solver.eigenvectors().rightCols(count).rowwise().reverse();
  MatrixXd on_left = core * on_right;
  const VectorXd values = normalised(on_left);
  return shared_out(left.q * on_left, values, right.q * on_right, all);
}

// |L R|^2 is the sum of the product of L^T L and R R^T, element by element.
double norm_of(const LoraProduct& product) {
  const MatrixXd left = stored(product.left, product.rows()).cast<double>(),
                 right = stored(product.right, product.rank).cast<double>();
  return std::sqrt(std::max(0.0, (left.transpose() * left).cwiseProduct(right * right.transpose()).sum()));
}

LowRank low_rank(std::span<const float> matrix, int64_t rows, const RankChoice& choice) {
  const Stored whole = stored(matrix, rows);
  const double all = square_sum(whole);
  const Index side = std::min(whole.rows(), whole.cols());
  const bool by_share = choice.energy > 0;
  for (Index columns = choice.rank > 0 && !by_share ? choice.rank : first_columns;; columns *= 2) {
    if (choice.rank > 0) columns = std::min<Index>(columns, choice.rank);
    if (choice.exact || side <= short_side || 4 * (columns + oversampling) >= side || (choice.rank == 0 && !by_share))
      return by_gram(whole, all, choice);
    const Found found = iterated(whole, columns + oversampling);
    const Index count = count_of(found.values, all, choice);
    const bool enough = count <= columns || columns == choice.rank;
    if (enough) return on_rows(whole, found.left.leftCols(std::min(count, columns)), all);
  }
}

}  // namespace lh
