#include "compile/weight_factors.h"

#include <cmath>

#include "lora/gram.h"

namespace lh {
namespace {

using Eigen::Index;
using Eigen::MatrixXd;
using Eigen::MatrixXf;
using RowMajor = RowMajorMatrix;
using Weight = StoredMatrix;

constexpr int64_t oversampling = 8;  // further columns of the randomized iteration, as Halko et al. advise

Weight matrix_of(const HostTensor& weight) {
  const int64_t outputs = weight.desc.shape[0];
  return {weight.as<float>().data(), outputs, weight.desc.shape.numel() / outputs};
}

HostTensor tensor_of(const RowMajor& matrix) {
  return HostTensor::from_floats({matrix.rows(), matrix.cols()},
                                 std::span(matrix.data(), static_cast<size_t>(matrix.size())));
}

// The eigenvectors of the `rank` largest eigenvalues, the largest first, and the square roots of these.
struct Largest {
  MatrixXd vectors;
  Eigen::VectorXd roots;
};
Largest largest(const MatrixXd& lower, Index rank) {
  const Eigen::SelfAdjointEigenSolver<MatrixXd> solver(lower);
  return {solver.eigenvectors().rightCols(rank).rowwise().reverse(),
          solver.eigenvalues().tail(rank).reverse().cwiseMax(0.0).cwiseSqrt()};
}

// 1 / sqrt(s scale), 0 for what the weight has none of.
Eigen::VectorXd inverse_roots(const Eigen::VectorXd& s, double scale) {
  return s.unaryExpr([&](double v) { return v > 0 ? 1 / std::sqrt(v * scale) : 0.0; });
}

// Singular vectors are known up to their signs: the largest number of each row of down is positive.
WeightFactors settled(RowMajor down, RowMajor up) {
  for (Index i = 0; i < down.rows(); ++i) {
    Index at = 0;
    down.row(i).cwiseAbs().maxCoeff(&at);
    if (down(i, at) < 0) down.row(i) *= -1, up.col(i) *= -1;
  }
  return {tensor_of(down), tensor_of(up)};
}

WeightFactors exact(const Weight& weight, Index rank, double scale) {
  const Largest found = largest(gram(weight), rank);
  const MatrixXd scaled = found.vectors * (found.roots / scale).cwiseSqrt().asDiagonal();
  const MatrixXf other = (found.vectors * inverse_roots(found.roots, scale).asDiagonal()).cast<float>();
  if (weight.rows() >= weight.cols()) return settled(scaled.transpose().cast<float>(), weight * other);
  return settled(other.transpose() * weight, scaled.cast<float>());
}

WeightFactors iterated(const Weight& weight, Index rank, double scale, int64_t rounds, Random& random) {
  const Index columns = std::min({rank + oversampling, weight.rows(), weight.cols()});
  MatrixXf start(weight.cols(), columns);
  random.fill_normal({start.data(), static_cast<size_t>(start.size())});
  MatrixXf basis = orthonormal(weight * start);  // [outputs, columns]
  for (int64_t round = 0; round < rounds; ++round)
    basis = orthonormal(weight * orthonormal(weight.transpose() * basis));
  const MatrixXf inside = basis.transpose() * weight;  // [columns, inputs]
  const Largest found = largest(inside.cast<double>() * inside.cast<double>().transpose(), rank);
  const MatrixXf left = (found.vectors * (found.roots / scale).cwiseSqrt().asDiagonal()).cast<float>();
  const MatrixXf right = (found.vectors * inverse_roots(found.roots, scale).asDiagonal()).cast<float>();
  return settled(right.transpose() * inside, basis * left);
}

}  // namespace

WeightFactors singular_factors(const HostTensor& weight, int64_t rank, double scale, int64_t rounds, Random& random) {
  const Weight matrix = matrix_of(weight);
  return rounds == 0 ? exact(matrix, rank, scale) : iterated(matrix, rank, scale, rounds, random);
}

WeightFactors qr_factors(const HostTensor& weight, int64_t rank) {
  const Weight matrix = matrix_of(weight);
  const Eigen::HouseholderQR<MatrixXd> qr(matrix.leftCols(rank).cast<double>());
  MatrixXd q = qr.householderQ() * MatrixXd::Identity(matrix.rows(), rank);
  for (Index i = 0; i < rank; ++i)
    if (qr.matrixQR()(i, i) < 0) q.col(i) *= -1;
  MatrixXd r = q.transpose() * matrix.cast<double>();
  for (Index i = 1; i < rank; ++i) r.row(i).head(i).setZero();
  return {tensor_of(r.cast<float>()), tensor_of(q.cast<float>())};
}

}  // namespace lh
