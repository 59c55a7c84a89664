// What the largest singular vectors of a weight are computed from. For files that see Eigen (host/CMakeLists.txt).
#pragma once

#define EIGEN_DONT_PARALLELIZE  // callers take several weights at once

#include <Eigen/Dense>
#include <algorithm>

namespace lh {

using RowMajorMatrix = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
using StoredMatrix = Eigen::Map<const RowMajorMatrix>;

// The lower half of W^T W where W is tall, of W W^T where it is wide; float64, a few rows or columns of W at a time.
inline Eigen::MatrixXd gram(const StoredMatrix& matrix) {
  using Eigen::Index, Eigen::MatrixXd;
  const bool tall = matrix.rows() >= matrix.cols();
  const Index side = std::min(matrix.rows(), matrix.cols()), length = std::max(matrix.rows(), matrix.cols());
  MatrixXd sum = MatrixXd::Zero(side, side);
  constexpr Index block = 512;
  for (Index first = 0; first < length; first += block) {
    const Index count = std::min(block, length - first);
    const MatrixXd part = tall ? MatrixXd(matrix.middleRows(first, count).transpose().cast<double>())
                               : MatrixXd(matrix.middleCols(first, count).cast<double>());
    sum.selfadjointView<Eigen::Lower>().rankUpdate(part);
  }
  return sum;
}

// Orthonormal columns of the same space.
inline Eigen::MatrixXf orthonormal(const Eigen::MatrixXf& columns) {
  const Eigen::HouseholderQR<Eigen::MatrixXf> qr(columns);
  return qr.householderQ() * Eigen::MatrixXf::Identity(columns.rows(), columns.cols());
}

}  // namespace lh
