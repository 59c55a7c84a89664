/* abi.h - versions, status codes and the plain types that cross the border between host and plugin.
 *
 * Rules of this ABI (0.x: may still change until 1.0):
 *  - no C++ type, exception, bool, enum, bitfield or varargs crosses; constants are typed integers;
 *  - allocation never crosses; strings in are copied before the call returns, strings out are static or live
 *    until `destroy`; values are indices into a host-owned graph;
 *  - a struct that one side fills and the other reads starts with struct_size, and the reader compares it with the
 *    end of the field it is about to read, never with ==; structs used in arrays are frozen for good;
 *  - on failure out-params stay untouched;
 *  - every function carries one thread tag: [any-thread] [setup] [build] [launch].
 */
#ifndef LORA_HOST_ABI_H
#define LORA_HOST_ABI_H

#include <stdint.h>

#define LH_ABI_MAJOR 0
#define LH_ABI_MINOR 1

typedef int32_t lh_status;
#define LH_OK 0
#define LH_E_INVALID (-1)     /* the caller broke the contract */
#define LH_E_UNSUPPORTED (-2) /* this host or plugin cannot do it */
#define LH_E_MODEL (-3)       /* the weights are not what the plugin needs */
#define LH_E_GRAPH (-4)       /* the graph already holds an error */
#define LH_E_INTERNAL (-5)

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

typedef struct lh_host lh_host;   /* opaque; one for each loaded plugin */
typedef struct lh_graph lh_graph; /* opaque; valid inside one build call */

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
