// What the memory planner found, for people: tables of budgets, and what a run that does not fit could do about it.
#pragma once

#include <string>
#include <vector>

#include "train/memory_planner.h"

namespace lh {

// "made again: norms 2.1 GiB; kept: products 8.0 GiB", of what the backward pass reads.
std::string recomputed_text(const KeptActivations& activations);
// A row for each budget, in bytes; the times are predictions, and said to be.
std::string memory_table(MemoryPlanner& planner, const std::vector<int64_t>& budgets);
// The budget itself between the next smaller and the next larger that cards have.
std::vector<int64_t> budgets_around(int64_t budget);

// Why no plan fits into `budget` bytes, and what would give most; only what this run has not done yet.
std::string does_not_fit(MemoryPlanner& planner, const Config& config, const Model& model, int64_t budget);

}  // namespace lh
