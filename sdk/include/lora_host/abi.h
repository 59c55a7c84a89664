/* abi.h - versions, status codes, handles and the plain types that cross the border between host and plugin.
 *
 * Rules of this ABI (0.x: may still change until 1.0):
 *  - No C++ type, exception, bool, enum, bitfield or varargs crosses; constants are typed integers.
 *  - Allocation never crosses. Strings in are copied before the call returns; strings out are static, or live as long
 * as the function says. Values are indices into a host-owned graph.
 *  - On failure out-params stay untouched.
 *
 * Handles. Each begins with the host's table, and whatever a function needs it reaches through the handle it is given:
 * lh_host (one for each loaded plugin), lh_model_ctx (one for each opened or probed model: weights, settings,
 * documents), lh_graph (one for each build). A plugin needs no global state, and many of its models can be open at
 * once.
 *
 * Versions. Within a major number structs only grow, at the end; a released field or slot never moves, and a required
 * one is never NULL. A struct that one side fills and the other reads starts with struct_size; structs used in arrays
 * are frozen for good.
 *  - A plugin states the oldest minor number that it needs: LH_TARGET_MINOR, by default the oldest that there is. A
 * host takes every minor number from LH_ABI_OLDEST to its own LH_ABI_MINOR, and refuses all others before any code of
 * the plugin runs.
 *  - A plugin built with newer headers than its host's therefore loads, as long as it needs nothing newer: it looks
 * with LH_HAS before it uses a field or slot that is newer than the minor number it needs.
 *  - The host reads a plugin's struct as far as struct_size says: the fields of minor number LH_ABI_OLDEST must be
 *    there, later ones are looked for with LH_HAS, and what is beyond those it knows is left alone.
 *
 * Threads. Each function has one tag. Those of the host's table, which a plugin calls:
 *    [any-thread]  at any time, from any thread.
 *    [model]       inside a callback that was given this lh_model_ctx, or the `self` that was created with it, on the
 *                  thread of that callback.
 *    [build]       inside a callback that was given this lh_graph, on the thread of that callback.
 *  Those of a plugin, which the host calls:
 *    [setup]       one call at a time in the whole process.
 *    [object]      on any thread; one call at a time for the same lh_model_ctx or `self`. Calls for different ones can
 *                  run at the same time, so what they share must not change.
 *    [any-thread]  on any thread, at the same time as any other.
 *  The host checks [model] and [build] on every call. A violation gives LH_E_INVALID, and the callback then fails with
 *  an error that names function and plugin.
 */
#ifndef LORA_HOST_ABI_H
#define LORA_HOST_ABI_H

#include <stddef.h>
#include <stdint.h>

#define LH_ABI_MAJOR 0
#define LH_ABI_MINOR 3
#define LH_ABI_OLDEST 2 /* the oldest minor number of LH_ABI_MAJOR that a host with these headers takes */

/* The minor number that a plugin needs; set it with -DLH_TARGET_MINOR=n to use what came with n without looking. */
#ifndef LH_TARGET_MINOR
#define LH_TARGET_MINOR LH_ABI_OLDEST
#endif

/* Does *ptr, a struct of this type, reach to the end of the field? */
#define LH_HAS(ptr, type, field) ((ptr)->struct_size >= offsetof(type, field) + sizeof((ptr)->field))

typedef int32_t lh_status;
#define LH_OK 0
#define LH_E_INVALID (-1)     /* the caller broke the contract */
#define LH_E_UNSUPPORTED (-2) /* this host or plugin cannot do it */
#define LH_E_MODEL (-3)       /* the model's files are not what the plugin needs, or do not have what was asked for */
#define LH_E_GRAPH (-4)       /* the graph already holds an error */
#define LH_E_INTERNAL (-5)
#define LH_E_SETTING (-6) /* a setting, option or size of the user is not one that the plugin takes */

typedef int32_t lh_dtype; /* values equal lk_dtype of the kernel library */
#define LH_F32 0
#define LH_F16 1
#define LH_BF16 2
#define LH_F8_E4M3 3
#define LH_F8_E5M2 4
#define LH_I32 5
#define LH_I64 6
#define LH_U8 7
#define LH_FLOAT 100 /* "the type the host computes in"; never the type of a stored tensor */

#define LH_MAX_RANK 8

/* Handles: made by the host, which keeps more behind the table. */
typedef struct lh_host_api lh_host_api;
typedef struct lh_host { /* one for each loaded plugin; valid from init to deinit */
  const lh_host_api* api;
} lh_host;
typedef struct lh_model_ctx { /* one for each opened or probed model; used inside callbacks that are given it */
  const lh_host_api* api;
} lh_model_ctx;
typedef struct lh_graph { /* one for each build; used inside the callback that is given it */
  const lh_host_api* api;
} lh_graph;

/* A value of a graph: 1-based index, 0 = none (also "this optional input is absent"). */
typedef struct lh_value {
  uint32_t id;
} lh_value;

/* Frozen: used in arrays. */
typedef struct lh_desc {
  lh_dtype dtype;
  uint32_t rank;
  int64_t dims[LH_MAX_RANK];
} lh_desc;

#define LH_ATTR_I64 0
#define LH_ATTR_F64 1
#define LH_ATTR_STRING 2
#define LH_ATTR_I64_LIST 3
#define LH_ATTR_F64_LIST 4

/* Frozen: used in arrays. `count` is the length of a list and 1 otherwise. */
typedef struct lh_attr {
  const char* name;
  int32_t type;
  uint32_t count;
  union {
    int64_t i;
    double f;
    const char* s;
    const int64_t* is;
    const double* fs;
  } v;
} lh_attr;

#endif
