// What a plugin reads of a model: weights by name, settings, documents.
#include "plugin/call.h"
#include "plugin/services.h"

namespace lh {
namespace {

// Remembers why a function of the table fails.
lh_status failed(lh_status status, const std::string& text) {
  if (Call* call = Call::current()) call->note_failure(text);
  return status;
}

// Runs the body of a function; no exception crosses the border. What is wrong with the user's files fails the call.
template <typename Body>
lh_status guarded(const char* function, Body body) {
  try {
    return body();
  } catch (const Error& error) {
    if (Call* call = Call::current()) call->doom(error.code(), fmt::format("{}: {}", function, error.what()));
    return LH_E_INVALID;
  } catch (const std::exception& error) {
    if (Call* call = Call::current()) call->doom(Code::resource, fmt::format("{}: {}", function, error.what()));
    return LH_E_INTERNAL;
  }
}

uint64_t weight_count(const lh_model_ctx* handle) {
  const ModelContext* model = usable(handle, "weight_count");
  return model == nullptr ? 0 : model->weights.size();
}

lh_status weight_at(const lh_model_ctx* handle, uint64_t index, const char** name, lh_desc* out) {
  const ModelContext* model = usable(handle, "weight_at");
  if (model == nullptr) return LH_E_INVALID;
  return guarded("weight_at", [&] {
    if (name == nullptr || out == nullptr) fail(Code::plugin, "a NULL pointer for name or out");
    if (index >= model->weights.size())
      return failed(LH_E_INVALID,
                    fmt::format("weight_at: there are {} weights, no number {}", model->weights.size(), index));
    *name = model->weights[index]->first.c_str();
    *out = to_abi(model->weights[index]->second);
    return LH_OK;
  });
}

lh_status weight_find(const lh_model_ctx* handle, const char* name, lh_desc* out) {
  const ModelContext* model = usable(handle, "weight_find");
  if (model == nullptr) return LH_E_INVALID;
  return guarded("weight_find", [&] {
    if (name == nullptr || out == nullptr) fail(Code::plugin, "a NULL pointer for name or out");
    const Desc* weight = model->find(name);
    if (weight == nullptr) return failed(LH_E_MODEL, fmt::format("the checkpoint has no tensor '{}'", name));
    *out = to_abi(*weight);
    return LH_OK;
  });
}

uint64_t weight_lower_bound(const lh_model_ctx* handle, const char* name) {
  const ModelContext* model = usable(handle, "weight_lower_bound");
  return model == nullptr ? 0 : model->lower_bound(name == nullptr ? "" : name);
}

// Weights alone have none.
const Documents& documents_of(const ModelContext& model) {
  static const Documents none;
  return model.documents == nullptr ? none : *model.documents;
}

// Hands out a text that lives as long as the handle.
lh_status give(ModelContext& model, const std::string& key, std::string text, const char** out) {
  *out = model.texts.emplace(key, std::move(text)).first->second.c_str();
  return LH_OK;
}

lh_status setting(const lh_model_ctx* handle, const char* key, const char** out) {
  const ModelContext* model = usable(handle, "setting");
  if (model == nullptr) return LH_E_INVALID;
  return guarded("setting", [&] {
    if (key == nullptr || out == nullptr) fail(Code::plugin, "a NULL pointer for key or out");
    const auto found = model->settings.find(key);
    if (found == model->settings.end()) return failed(LH_E_MODEL, fmt::format("model.{} is not set", key));
    *out = found->second.c_str();
    return LH_OK;
  });
}

lh_status document(const lh_model_ctx* handle, const char* component, const char* name, const char** out) {
  ModelContext* model = usable(handle, "document");
  if (model == nullptr) return LH_E_INVALID;
  return guarded("document", [&] {
    if (name == nullptr || out == nullptr) fail(Code::plugin, "a NULL pointer for name or out");
    const std::string of = component == nullptr ? "" : component;
    Documents::Found found = documents_of(*model).document(of, name);
    if (!found.text) return failed(LH_E_MODEL, found.absence);
    return give(*model, fmt::format("document\n{}\n{}", of, name), *std::move(found.text), out);
  });
}

lh_status metadata(const lh_model_ctx* handle, const char* component, const char* key, const char** out) {
  ModelContext* model = usable(handle, "metadata");
  if (model == nullptr) return LH_E_INVALID;
  return guarded("metadata", [&] {
    if (component == nullptr || key == nullptr || out == nullptr)
      fail(Code::plugin, "a NULL pointer for component, key or out");
    Documents::Found found = documents_of(*model).metadata(component, key);
    if (!found.text) return failed(LH_E_MODEL, found.absence);
    return give(*model, fmt::format("metadata\n{}\n{}", component, key), *std::move(found.text), out);
  });
}

}  // namespace

void fill_model_services(lh_host_api& api) {
  api.weight_count = weight_count;
  api.weight_at = weight_at;
  api.weight_find = weight_find;
  api.weight_lower_bound = weight_lower_bound;
  api.setting = setting;
  api.document = document;
  api.metadata = metadata;
}

}  // namespace lh
