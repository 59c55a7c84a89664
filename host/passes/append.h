// Pass: puts the nodes of one graph behind those of another, so that both are one program and share one plan of memory.
#pragma once

#include <functional>
#include <map>
#include <string>

#include "graph/graph.h"

namespace lh {

// Gives the value of the first graph that is the input `name` of the second.
using InputOf = std::function<Value(const std::string& name, const Desc& desc)>;

// Parameters of one name are one, and so are scopes of one path: blocks of both are streamed together. Gives the
// outputs of `piece` as values of `graph`; which of them are outputs of the whole is the caller's word.
std::map<std::string, Value> append(Graph& graph, const Graph& piece, const InputOf& input);

// The input of that name, made where there is none.
Value shared_input(Graph& graph, const std::string& name, const Desc& desc);

}  // namespace lh
