/* lora_kernels.h - the public C API of liblora_kernels.
 *
 * Compute kernels for LoRA training, forward and backward, behind one interface for every backend.
 * The library knows tensors and nothing else: no graph, no model, no file.
 *
 * Tensors    row-major, rank <= 8, dense unless they have strides. Images are [N, H, W, C], videos [N, T, H, W, C];
 *            convolution weights are [O, KH, KW, C] and [O, KT, KH, KW, C].
 * Lines      some operands may lie in lines: neighbouring elements, so many that they are a product of last axes, and
 *            from the first element of a line to that of the next always the same number of elements, the pitch. So
 *            columns of a wider matrix are read and written where they are. Which operands may, a comment says
 *            ("in lines: x, y"); all others are dense.
 * Types      every floating tensor may be stored as f32, f16 or bf16 (weights also as fp8, i8 or nf4), mixed freely
 *            within a call; arithmetic and accumulation are float32. Losses, norms and statistics are f32.
 * Structs    of parameters begin with struct_size, sizeof of the struct as the caller was compiled: in C++ it is
 *            there by itself, in C set it: lk_fill_params p = {.struct_size = sizeof p}. Later versions add
 *            fields at a struct's end, and zero in them means what this version does; so a program runs with any
 *            library of its major version that knows the fields it sets.
 * Contract   outputs are overwritten unless a field called `accumulate` says otherwise. An output may not
 *            overlap an input unless the comment says "in place". A tensor whose data is NULL is absent;
 *            fields marked "optional" may be absent, and an absent gradient output is not computed.
 * Errors     every call returns a status; the text of the last failure is lk_last_error(context). Nothing is
 *            written when a status other than LK_OK comes from checking arguments.
 * Threads    a context belongs to one thread at a time, different ones are independent; calls keep the thread's GPU.
 */
#ifndef LORA_KERNELS_H
#define LORA_KERNELS_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define LK_API __attribute__((visibility("default")))
#else
#define LK_API
#endif

#ifdef __cplusplus
#define LK_SIZE_OF(params) = sizeof(params)
#else
#define LK_SIZE_OF(params)
#endif

#define LK_VERSION_MAJOR 0
#define LK_VERSION_MINOR 2
#define LK_MAX_RANK 8

/* ---- status, types, tensors ------------------------------------------------------------------------- */

typedef int32_t lk_status;
#define LK_OK 0
#define LK_E_INVALID 1     /* an argument breaks the contract; the text names it */
#define LK_E_UNSUPPORTED 2 /* this backend has no such kernel */
#define LK_E_MEMORY 3      /* host or device memory could not be had */
#define LK_E_DEVICE 4      /* no such device, or the device failed */
#define LK_E_NO_DRIVER 5   /* the machine has no driver for the backend's devices */
#define LK_E_OLD_DRIVER 6  /* it has one that is too old for this library */
#define LK_E_LIBRARY 7     /* a library that the backend needs is missing, or of a version that does not work */

typedef int32_t lk_dtype;
#define LK_F32 0
#define LK_F16 1
#define LK_BF16 2
#define LK_F8_E4M3 3 /* the "fn" variant: no infinity, NaN 0x7F and 0xFF, largest 448 */
#define LK_F8_E5M2 4
#define LK_I32 5
#define LK_I64 6
#define LK_U8 7
#define LK_I8 8  /* weights, and casts from and to other types */
#define LK_NF4 9 /* weights alone, two elements to a byte: see "weights in fewer bits" */

typedef struct lk_tensor {
  void* data;
  lk_dtype dtype;
  int32_t rank;
  int64_t dims[LK_MAX_RANK];
  int64_t strides[LK_MAX_RANK]; /* elements from one to the next along each axis; all 0: dense, row-major */
} lk_tensor;

LK_API int64_t lk_dtype_size(lk_dtype dtype); /* bytes of one element; 0 for nf4 and for an unknown type */
LK_API const char* lk_dtype_name(lk_dtype dtype);
LK_API int64_t lk_numel(const lk_tensor* tensor);        /* 1 for rank 0 */
LK_API int64_t lk_tensor_bytes(const lk_tensor* tensor); /* that a dense tensor takes; 0 for an unknown type */
LK_API const char* lk_version(void);

/* ---- context ---------------------------------------------------------------------------------------- */

typedef int32_t lk_backend;
#define LK_CPU 0
#define LK_CUDA 1

typedef struct lk_context lk_context;

typedef struct lk_context_params {
  int64_t struct_size LK_SIZE_OF(lk_context_params);
  lk_backend backend;
  int32_t device;  /* CUDA device index */
  int32_t threads; /* CPU threads, 0 = all cores the process may use */
  int32_t fast;    /* 1: kernels may add in an order that changes from run to run where that is faster */
  /* Optional: a file that keeps which matrix-product algorithm was fastest, on this device with this library version;
   * it is made if it is not there. Without it, unless `fast`, the library's first guess is taken, so that every process
   * gets the same bits. */
  const char* tuning_cache;
} lk_context_params;

LK_API int32_t lk_backend_available(lk_backend backend); /* 1 if it is there; LK_CUDA is lora-kernels/cuda.so */
LK_API lk_status lk_context_create(const lk_context_params* params, lk_context** out);
LK_API void lk_context_destroy(lk_context* context);
LK_API const char* lk_last_error(const lk_context* context); /* never NULL; also valid for NULL context */
LK_API int32_t lk_context_threads(const lk_context* context);

typedef struct lk_device_info {
  int64_t struct_size LK_SIZE_OF(lk_device_info); /* in; what a caller's struct has no room for is left out */
  char name[128];                                 /* "NVIDIA H200", or "cpu" */
  char libraries[128];               /* versions of driver and libraries in use; on the CPU with their kernel */
  int32_t compute_capability;        /* 90 = 9.0; 0 on the CPU */
  int64_t memory_total, memory_free; /* bytes; of the machine on the CPU */
} lk_device_info;
LK_API lk_status lk_get_device_info(lk_context* context, lk_device_info* out);

/* Memory that kernels of this context may use, 256-byte aligned. */
LK_API lk_status lk_alloc(lk_context* context, int64_t bytes, void** out);
LK_API void lk_free(lk_context* context, void* data);
LK_API lk_status lk_upload(lk_context* context, void* dst, const void* host_src, int64_t bytes);
LK_API lk_status lk_download(lk_context* context, void* host_dst, const void* src, int64_t bytes);
LK_API lk_status lk_synchronize(lk_context* context);
LK_API int64_t lk_memory_peak(const lk_context* context); /* most bytes that lk_alloc and workspaces held at once */

/* ---- work in flight ----------------------------------------------------------------------------------
 * Three queues, each in order: LK_COMPUTE takes every operation, LK_TRANSFER copies beside them, LK_RETURN those to the
 * host. On the CPU all has happened when a call returns. lk_upload, lk_download, lk_synchronize wait for all queues. */
typedef int32_t lk_queue;
#define LK_COMPUTE 0
#define LK_TRANSFER 1
#define LK_RETURN 2

/* Host memory that copies can run from and to without waiting (page-locked where that means something). */
LK_API lk_status lk_host_alloc(lk_context* context, int64_t bytes, void** out);
LK_API void lk_host_free(lk_context* context, void* data);
/* Between any two places; host memory must come from lk_host_alloc and stay untouched until the copy has happened. */
LK_API lk_status lk_copy_async(lk_context* context, lk_queue queue, void* dst, const void* src, int64_t bytes);

/* A place in a queue. `wait` lets a queue go on only once the recorded place was reached, `finish` waits for it on the
 * host, `elapsed` gives the time between two reached places. */
typedef struct lk_event lk_event;
LK_API lk_status lk_event_create(lk_context* context, lk_event** out);
LK_API void lk_event_destroy(lk_context* context, lk_event* event);
LK_API lk_status lk_event_record(lk_context* context, lk_event* event, lk_queue queue);
LK_API lk_status lk_event_wait(lk_context* context, lk_event* event, lk_queue queue);
LK_API lk_status lk_event_finish(lk_context* context, lk_event* event);
LK_API lk_status lk_event_elapsed(lk_context* context, lk_event* start, lk_event* end, float* milliseconds);

/* Recording: operations and compute-queue copies between begin and end are not run but kept, with their addresses, and
 * run as one by each launch (a CUDA graph). Copies of another queue are part of it from where that queue waits for an
 * event that the compute queue recorded since begin, and stay beside the operations; the compute queue has to wait
 * for an event behind the last of them before end. Such events belong to the recording: record them anew elsewhere. Run
 * them once without recording first: that is when plans are made and algorithms timed. The workspace's address is kept
 * too: lend one (lk_set_workspace) where other operations, which may need a larger one, run between the launches.
 * LK_E_UNSUPPORTED on the CPU, where running the operations one by one costs nothing more. */
typedef struct lk_graph lk_graph;
LK_API lk_status lk_capture_begin(lk_context* context);
LK_API lk_status lk_capture_end(lk_context* context, lk_graph** out); /* out NULL: what was recorded is dropped */
LK_API lk_status lk_graph_launch(lk_context* context, lk_graph* graph);
LK_API void lk_graph_destroy(lk_context* context, lk_graph* graph);

/* Operations between begin and end have an effect only if value[0] (f32) is finite when they are reached. Not nested.
 */
LK_API lk_status lk_if_finite_begin(lk_context* context, const lk_tensor* value);
LK_API lk_status lk_if_finite_end(lk_context* context);

/* Between fork and join, operations and compute-queue copies that come after lk_branch(i), 0 <= i < branches, happen in
 * order within branch i and beside those of other branches: many small operations together fill a device that none of
 * them fills alone. All branches begin with what came before the fork, and what comes after the join waits for all of
 * them. What one branch writes, no other may read or write. Their workspaces are not shared, so measure with the fork:
 * of two branches each takes what the largest of its operations needs, of more than two every operation its own.
 * Fork at most LK_MAX_BRANCHES, not nested, with a branch before the first operation; a condition begins and ends
 * outside. On the CPU everything happens in the order of the calls. */
#define LK_MAX_BRANCHES 16
LK_API lk_status lk_fork(lk_context* context, int32_t branches);
LK_API lk_status lk_branch(lk_context* context, int32_t branch);
LK_API lk_status lk_join(lk_context* context);

/* Workspace: memory that operations use only while they run. Between lk_measure_begin and lk_measure_end operations
 * check their arguments and find how much they need, but neither read nor write anything, so any non-NULL addresses
 * will do; measuring gives the most that one of them needs. lk_set_workspace lends the context memory of that size;
 * without it the context takes its own as needed, which is an error while recording. */
LK_API lk_status lk_measure_begin(lk_context* context);
LK_API lk_status lk_measure_end(lk_context* context, int64_t* workspace_bytes);
LK_API lk_status lk_set_workspace(lk_context* context, void* data, int64_t bytes); /* NULL: the context's own again */

/* ---- matrix products -------------------------------------------------------------------------------- */

/* Weights in fewer bits. Where a weight [out, in] has a weight_scale, its values are its elements times factors:
 *   any type but nf4   weight_scale f32, one element or [out]: one factor for all rows, or one for each.
 *   nf4                weight_scale is needed, u8 [lk_nf4_scale_bytes(blocks)], aligned to 4 bytes: one factor for each
 *                      block of LK_NF4_BLOCK neighbours in a row, of which the last of a row may be shorter.
 * nf4 (Dettmers et al. 2023, "QLoRA"): an element is the number of one of 16 levels, lk_nf4_levels. Rows begin at a
 * byte; element 2 i of a row is in the upper four bits of byte i, element 2 i + 1 in the lower ones. The factors of the
 * blocks, numbered row by row, are kept in 8 bits ("double quantisation"). weight_scale holds, one after the other:
 *   f32 offset, f32 range[ceil(blocks / 256)], u8 code[blocks];
 *   factor of block b = fma(map[code[b]], range[b / 256], offset), map = lk_blockwise_values(1)
 * and the value is level times factor, rounded once to f32. */
#define LK_NF4_BLOCK 64
LK_API int64_t lk_nf4_scale_bytes(int64_t blocks);
LK_API const float* lk_nf4_levels(void);                    /* 16, ascending, from -1 to 1; number 7 is 0 */
LK_API const float* lk_blockwise_values(int32_t is_signed); /* the 256 values of lk_quantize_blockwise's map */

/* The numbers in which the products with a layer's weight are made, y's and dx's.
 *   LK_PRODUCTS_WIDE  those of x, or dy: the weight's values are rounded to that type. Where both are bf16, processors
 *                     with instructions for it take numbers below the smallest normal one, 2^-126, as zero.
 *   LK_PRODUCTS_E4M3  8 bits, with a weight of fp8: each row v of x, and of dy times the weight's factors, becomes
 *                       factor = max(max |v| / 448, 2^-126),  code[i] = e4m3(v[i] * (1 / factor)), to nearest even;
 *                     products of codes are added up in f32 or nearly so (tensor cores of 9.0 keep 13 bits of a term
 *                     beside the largest that it is added to), and the sum times the factors is y or dx.
 *   LK_PRODUCTS_I8    the same with a weight of i8: 127 in place of 448, code[i] the integer nearest to it, halves to
 *                     even, and sums that are exact where the device has products of i8.
 * Rows that are not finite give NaN. Up to LK_FEW_ROWS rows are WIDE, since reading the weight takes the time. weight,
 * y and dx are aligned to 16 bytes. dweight and adapters are not concerned. */
typedef int32_t lk_products;
#define LK_PRODUCTS_WIDE 0
#define LK_PRODUCTS_E4M3 1
#define LK_PRODUCTS_I8 2
#define LK_FEW_ROWS 8

/* y[..., out] = x[..., in] weight[out, in]^T + bias[out]. weight may be of fewer bits, with its weight_scale. */
typedef struct lk_linear_params {
  int64_t struct_size LK_SIZE_OF(lk_linear_params);
  lk_tensor x, weight;
  lk_tensor weight_scale; /* optional */
  lk_tensor bias;         /* optional */
  lk_tensor y;
  lk_products products;
} lk_linear_params;
LK_API lk_status lk_linear(lk_context*, const lk_linear_params*);

/* dx = dy weight; dweight = dy^T x; dbias = sum of dy over rows. */
typedef struct lk_linear_backward_params {
  int64_t struct_size LK_SIZE_OF(lk_linear_backward_params);
  lk_tensor dy;
  lk_tensor x;                  /* needed for dweight */
  lk_tensor weight;             /* needed for dx */
  lk_tensor weight_scale;       /* optional */
  lk_tensor dx, dweight, dbias; /* optional outputs */
  lk_products products;
} lk_linear_backward_params;
LK_API lk_status lk_linear_backward(lk_context*, const lk_linear_backward_params*);

/* s[..., r] = (x down^T) * mask ;  y = base + scale * s up^T + added, where base = x weight^T + bias.
 * down [r, in], up [out, r]. Without a weight, base is zero and y holds the LoRA branch alone. */
typedef struct lk_lora_forward_params {
  int64_t struct_size LK_SIZE_OF(lk_lora_forward_params);
  lk_tensor x;
  lk_tensor weight, weight_scale, bias; /* optional */
  lk_tensor down, up;
  lk_tensor mask; /* optional [..., r]: dropout factors */
  float scale;    /* alpha / rank */
  lk_tensor y, s;
  lk_products products; /* of base */
  /* optional, in lines: act(y[..., activated_from:]) of y as it is stored. On a GPU it is aligned to 16 bytes, and then
   * x, weight, y and s are, too. */
  lk_tensor activated;
  int32_t activation; /* LK_GELU_ERF or LK_GELU_TANH; LK_SILU where it gates */
  int64_t activated_from;
  lk_tensor added; /* optional, like y; not beside `activated` */
  int32_t gates;   /* 1: the first half of the columns gates the second, as lk_gated_activation, to half as many */
} lk_lora_forward_params;
LK_API lk_status lk_lora_forward(lk_context*, const lk_lora_forward_params*);

/* ds = scale * (dy up) * mask ;  ddown = ds^T x ;  dup = scale * dy^T s ;  dx = dy weight + ds down. */
typedef struct lk_lora_backward_params {
  int64_t struct_size LK_SIZE_OF(lk_lora_backward_params);
  lk_tensor dy, x;
  lk_tensor s;                    /* optional; recomputed from x and down when absent */
  lk_tensor weight, weight_scale; /* optional: without it dx is the LoRA branch's alone */
  lk_tensor down, up;
  lk_tensor mask; /* optional, as in forward */
  float scale;
  int32_t accumulate;       /* 1: ddown and dup are added to (dx is always overwritten) */
  lk_tensor dx, ddown, dup; /* optional outputs */
  lk_products products;     /* of dy weight */
  lk_tensor added;          /* optional, like dx, which it is added to */
  lk_tensor ds;             /* optional output [..., r] of dy's type: for lk_lora_gradients */
} lk_lora_backward_params;
LK_API lk_status lk_lora_backward(lk_context*, const lk_lora_backward_params*);

/* c = op(a) op(b) per batch: a [..., m, k], b [..., k, n], stored transposed with transpose_a, transpose_b. Leading
 * dims are equal, or all 1: in a or b, one for every batch (a GPU rounds it to the other's type); in c, a sum. */
typedef struct lk_matmul_params {
  int64_t struct_size LK_SIZE_OF(lk_matmul_params);
  lk_tensor a, b, c;
  int32_t transpose_a, transpose_b;
} lk_matmul_params;
LK_API lk_status lk_matmul(lk_context*, const lk_matmul_params*);

/* y = X_steps of each matrix of x [..., R, C], where X_0 = scale x and X_k+1 = a X_k + b A X_k + c A A X_k with
 * A = X_k X_k^T (Newton-Schulz; Jordan 2024): the singular values go to about 1, the singular vectors stay. scale
 * [..., 1, 1]; all f32. Made in float64 from G = scale^2 x x^T, or x^T x where there are more rows than columns: all A
 * are polynomials of G, so that y = P(G) scale x has one product on either side of iterations in min(R, C)^2. */
#define LK_NEWTON_SCHULZ_MAX_SIDE 128 /* min(R, C) is at most this */
typedef struct lk_newton_schulz_params {
  int64_t struct_size LK_SIZE_OF(lk_newton_schulz_params);
  lk_tensor x, scale, y;
  double a, b, c;
  int64_t steps; /* at least 1 */
} lk_newton_schulz_params;
LK_API lk_status lk_newton_schulz(lk_context*, const lk_newton_schulz_params*);

/* x [N, H, W, C], weight [O, KH, KW, C / groups], y [N, OH, OW, O]; zero padding. groups (at least 1) divides C and O:
 * the outputs of group g see the channels of group g. */
typedef struct lk_conv2d_params {
  int64_t struct_size LK_SIZE_OF(lk_conv2d_params);
  lk_tensor x, weight;
  lk_tensor bias; /* optional */
  lk_tensor y;
  int32_t stride;
  int32_t pad_top, pad_left, pad_bottom, pad_right;
  int32_t groups;
} lk_conv2d_params;
LK_API lk_status lk_conv2d(lk_context*, const lk_conv2d_params*);

typedef struct lk_conv2d_backward_params {
  int64_t struct_size LK_SIZE_OF(lk_conv2d_backward_params);
  lk_tensor dy;
  lk_tensor x;                  /* needed for dweight */
  lk_tensor weight;             /* needed for dx */
  lk_tensor dx, dweight, dbias; /* optional outputs */
  int32_t stride;
  int32_t pad_top, pad_left, pad_bottom, pad_right;
  int32_t groups;
} lk_conv2d_backward_params;
LK_API lk_status lk_conv2d_backward(lk_context*, const lk_conv2d_backward_params*);

/* x [N, T, H, W, C], weight [O, KT, KH, KW, C], y [N, OT, OH, OW, O]; zero padding. stride is of time, height, width,
 * pad is front, back, top, bottom, left, right: all padding of time in front makes the convolution causal. */
typedef struct lk_conv3d_params {
  int64_t struct_size LK_SIZE_OF(lk_conv3d_params);
  lk_tensor x, weight;
  lk_tensor bias; /* optional */
  lk_tensor y;
  int32_t stride[3];
  int32_t pad[6];
} lk_conv3d_params;
LK_API lk_status lk_conv3d(lk_context*, const lk_conv3d_params*);

typedef struct lk_conv3d_backward_params {
  int64_t struct_size LK_SIZE_OF(lk_conv3d_backward_params);
  lk_tensor dy;
  lk_tensor x;                  /* needed for dweight */
  lk_tensor weight;             /* needed for dx */
  lk_tensor dx, dweight, dbias; /* optional outputs */
  int32_t stride[3];
  int32_t pad[6];
} lk_conv3d_backward_params;
LK_API lk_status lk_conv3d_backward(lk_context*, const lk_conv3d_backward_params*);

/* ---- attention, softmax, position ------------------------------------------------------------------- */

/* q [B, Sq, H, D], k and v [B, Sk, Hk, D] where Hk divides H (grouped heads: query head h reads key head h / (H / Hk)),
 * o like q. s = scale q k^T, and soft_cap tanh(s / soft_cap) where soft_cap is not 0; p = softmax(s + bias) over the
 * keys that a query sees; o = p v. bias: [1 or B, 1 or H, Sq, Sk]. A key is seen where all of these allow it.
 * key_lengths, i32 [B]: keys before it. key_mask, i32 [B, Sk]: keys where it is not 0. causal: keys j <= i by query i,
 * counted in k as it is given. A query that sees no key has o = 0 and lse = -infinity, its dq is 0 and it adds nothing
 * to dk and dv; the dk and dv of a key that no query sees are 0. lse [B, H, Sq] f32 = natural log of the sum of
 * exponentials, for the backward pass. In lines: q, k, v, o. */
typedef struct lk_attention_params {
  int64_t struct_size LK_SIZE_OF(lk_attention_params);
  lk_tensor q, k, v;
  lk_tensor bias, key_lengths, key_mask; /* optional */
  float scale;
  float soft_cap; /* 0: none */
  int32_t causal;
  lk_tensor o;
  lk_tensor lse; /* optional output */
} lk_attention_params;
LK_API lk_status lk_attention(lk_context*, const lk_attention_params*);

/* dk and dv sum over the query heads of their group. In lines: d_o, q, k, v, o, dq, dk, dv. */
typedef struct lk_attention_backward_params {
  int64_t struct_size LK_SIZE_OF(lk_attention_backward_params);
  lk_tensor d_o, q, k, v, o, lse;
  lk_tensor bias, key_lengths, key_mask; /* optional */
  float scale;
  float soft_cap;
  int32_t causal;
  lk_tensor dq, dk, dv;
} lk_attention_backward_params;
LK_API lk_status lk_attention_backward(lk_context*, const lk_attention_backward_params*);

/* Over the last axis. */
typedef struct lk_softmax_params {
  int64_t struct_size LK_SIZE_OF(lk_softmax_params);
  lk_tensor x, y;
} lk_softmax_params;
LK_API lk_status lk_softmax(lk_context*, const lk_softmax_params*);

typedef struct lk_softmax_backward_params {
  int64_t struct_size LK_SIZE_OF(lk_softmax_backward_params);
  lk_tensor dy, y, dx;
} lk_softmax_backward_params;
LK_API lk_status lk_softmax_backward(lk_context*, const lk_softmax_backward_params*);

/* Rotary embedding of x [B, S, H, D] by cos and sin f32 [S, D/2] or [B, S, D/2]: of pairs (2i, 2i+1), or (i, i + D/2),
 * which may have an angle for each number, in tables D wide. inverse rotates back (transposes): the gradient. */
typedef struct lk_rope_params {
  int64_t struct_size LK_SIZE_OF(lk_rope_params);
  lk_tensor x, cos, sin, y;
  int32_t interleaved, inverse;
} lk_rope_params;
LK_API lk_status lk_rope(lk_context*, const lk_rope_params*);

/* t f32 [B] -> y [B, dim] = [cos(a), sin(a)], a_k = scale * t * exp(-ln(max_period) k / (dim/2));
 * sin_first swaps the halves. Angles are computed in float64. */
typedef struct lk_timestep_embedding_params {
  int64_t struct_size LK_SIZE_OF(lk_timestep_embedding_params);
  lk_tensor t, y;
  double max_period, scale;
  int32_t sin_first;
} lk_timestep_embedding_params;
LK_API lk_status lk_timestep_embedding(lk_context*, const lk_timestep_embedding_params*);

/* ---- norms ------------------------------------------------------------------------------------------ */

/* Over the last axis C; weight and bias [C]. Backward recomputes the statistics from x. */
typedef struct lk_layer_norm_params {
  int64_t struct_size LK_SIZE_OF(lk_layer_norm_params);
  lk_tensor x;
  lk_tensor weight, bias; /* optional */
  lk_tensor y;
  float eps;
} lk_layer_norm_params;
LK_API lk_status lk_layer_norm(lk_context*, const lk_layer_norm_params*);

typedef struct lk_layer_norm_backward_params {
  int64_t struct_size LK_SIZE_OF(lk_layer_norm_backward_params);
  lk_tensor dy, x;
  lk_tensor weight; /* optional */
  float eps;
  lk_tensor dx, dweight, dbias; /* optional outputs */
  lk_tensor added; /* optional, like dx, which it is added to before dx is rounded; in place (dx == added) */
} lk_layer_norm_backward_params;
LK_API lk_status lk_layer_norm_backward(lk_context*, const lk_layer_norm_backward_params*);

/* In lines: x, y, and of the gradients dy, x, dx. */
typedef struct lk_rms_norm_params {
  int64_t struct_size LK_SIZE_OF(lk_rms_norm_params);
  lk_tensor x;
  lk_tensor weight; /* optional */
  lk_tensor y;
  float eps;
} lk_rms_norm_params;
LK_API lk_status lk_rms_norm(lk_context*, const lk_rms_norm_params*);

typedef struct lk_rms_norm_backward_params {
  int64_t struct_size LK_SIZE_OF(lk_rms_norm_backward_params);
  lk_tensor dy, x;
  lk_tensor weight; /* optional */
  float eps;
  lk_tensor dx, dweight; /* optional outputs */
  lk_tensor added;       /* optional, as of lk_layer_norm_backward */
} lk_rms_norm_backward_params;
LK_API lk_status lk_rms_norm_backward(lk_context*, const lk_rms_norm_backward_params*);

/* y = rope(rms_norm(x)) for x [B, S, H, D], the norm over D; cos, sin and interleaved as of lk_rope. What lies between
 * is not rounded to a storage type. In lines: x, y, and of the gradients dy, x, dx. */
typedef struct lk_rms_norm_rope_params {
  int64_t struct_size LK_SIZE_OF(lk_rms_norm_rope_params);
  lk_tensor x;
  lk_tensor weight; /* optional, [D] */
  lk_tensor cos, sin, y;
  float eps;
  int32_t interleaved;
} lk_rms_norm_rope_params;
LK_API lk_status lk_rms_norm_rope(lk_context*, const lk_rms_norm_rope_params*);

typedef struct lk_rms_norm_rope_backward_params {
  int64_t struct_size LK_SIZE_OF(lk_rms_norm_rope_backward_params);
  lk_tensor dy, x;
  lk_tensor weight; /* optional; gets no gradient */
  lk_tensor cos, sin;
  float eps;
  int32_t interleaved;
  lk_tensor dx;
} lk_rms_norm_rope_backward_params;
LK_API lk_status lk_rms_norm_rope_backward(lk_context*, const lk_rms_norm_rope_backward_params*);

/* y = norm(x) * (1 + scale) + shift over the last axis of x [B, S, C]; scale and shift [B, C] or [B, 1, C]. norm is
 * layer_norm without a weight, or, where `rms` is 1, rms_norm with the optional weight [C]; shift is then optional.
 * What lies between is not rounded to a storage type. */
typedef struct lk_modulated_norm_params {
  int64_t struct_size LK_SIZE_OF(lk_modulated_norm_params);
  lk_tensor x, scale, shift, y;
  float eps;
  int32_t rms;
  lk_tensor weight; /* optional, with rms */
} lk_modulated_norm_params;
LK_API lk_status lk_modulated_norm(lk_context*, const lk_modulated_norm_params*);

/* dscale = sum over S of dy * norm(x); dshift = sum over S of dy. */
typedef struct lk_modulated_norm_backward_params {
  int64_t struct_size LK_SIZE_OF(lk_modulated_norm_backward_params);
  lk_tensor dy, x;
  lk_tensor scale; /* needed for dx */
  float eps;
  lk_tensor dx, dscale, dshift; /* optional outputs */
  int32_t rms;
  lk_tensor weight; /* optional, with rms; gets no gradient */
  lk_tensor added;  /* optional, as of lk_layer_norm_backward */
} lk_modulated_norm_backward_params;
LK_API lk_status lk_modulated_norm_backward(lk_context*, const lk_modulated_norm_backward_params*);

/* x [N, ..., C] in `groups` groups of channels, statistics over all but N within a group. */
typedef struct lk_group_norm_params {
  int64_t struct_size LK_SIZE_OF(lk_group_norm_params);
  lk_tensor x;
  lk_tensor weight, bias; /* optional */
  lk_tensor y;
  int32_t groups;
  float eps;
} lk_group_norm_params;
LK_API lk_status lk_group_norm(lk_context*, const lk_group_norm_params*);

typedef struct lk_group_norm_backward_params {
  int64_t struct_size LK_SIZE_OF(lk_group_norm_backward_params);
  lk_tensor dy, x;
  lk_tensor weight; /* optional */
  int32_t groups;
  float eps;
  lk_tensor dx, dweight, dbias; /* optional outputs */
} lk_group_norm_backward_params;
LK_API lk_status lk_group_norm_backward(lk_context*, const lk_group_norm_backward_params*);

/* ---- elementwise ------------------------------------------------------------------------------------ */

typedef int32_t lk_unary_kind;
#define LK_SILU 0
#define LK_GELU_ERF 1
#define LK_GELU_TANH 2
#define LK_GELU_QUICK 3 /* x sigmoid(1.702 x) */
#define LK_SIGMOID 4
#define LK_TANH 5
#define LK_RELU 6
#define LK_EXP 7
#define LK_SQRT 8
#define LK_RSQRT 9
#define LK_ABS 10
#define LK_SIGN 11
#define LK_SQUARE 12
#define LK_AFFINE 13 /* a x + b */
#define LK_CLAMP 14  /* min(max(x, a), b) */
#define LK_SIN 15    /* radians */
#define LK_COS 16
#define LK_LOG 17 /* natural */
#define LK_FLOOR 18
#define LK_CEIL 19
#define LK_ROUND 20 /* to the nearest integer, halves to the even one */

/* x and y floating, or both i32 for LK_RELU, LK_ABS, LK_SIGN, LK_SQUARE, LK_AFFINE and LK_CLAMP: a and b are then whole
 * numbers from -2^24 to 2^24, and results wrap modulo 2^32. In place allowed (y == x). In lines: x, y if floating. */
typedef struct lk_unary_params {
  int64_t struct_size LK_SIZE_OF(lk_unary_params);
  lk_unary_kind kind;
  float a, b;
  lk_tensor x, y;
} lk_unary_params;
LK_API lk_status lk_unary(lk_context*, const lk_unary_params*);

/* dx = dy * f'(x), zero where f is constant in steps. In place allowed (dx == dy). In lines: dy, x, dx. */
typedef struct lk_unary_backward_params {
  int64_t struct_size LK_SIZE_OF(lk_unary_backward_params);
  lk_unary_kind kind;
  float a, b;
  lk_tensor dy, x, dx;
} lk_unary_backward_params;
LK_API lk_status lk_unary_backward(lk_context*, const lk_unary_backward_params*);

typedef int32_t lk_binary_kind;
#define LK_ADD 0
#define LK_SUB 1
#define LK_MUL 2
#define LK_DIV 3
#define LK_MAX 4
#define LK_MIN 5
#define LK_GREATER_EQUAL 6 /* this and the following: 1 or 0, and 0 where an operand is NaN */
#define LK_EQUAL 7
#define LK_LESS 8
#define LK_LESS_EQUAL 9
#define LK_GREATER 10

/* y = a (kind) b, right-aligned broadcast. a and b are floating, or both i32; y is floating or i32 as they are, and
 * either for comparisons. i32: results wrap modulo 2^32, and there is no LK_DIV. In place allowed where shapes are
 * equal. */
typedef struct lk_binary_params {
  int64_t struct_size LK_SIZE_OF(lk_binary_params);
  lk_binary_kind kind;
  lk_tensor a, b, y;
} lk_binary_params;
LK_API lk_status lk_binary(lk_context*, const lk_binary_params*);

/* y = x + gate * z; x and z [B, S, C], gate [B, C] or [B, 1, C]. In place allowed (y == x). Where `rms` is 1,
 * rms_norm(z) with the optional weight [C] stands for z; it is not rounded to a storage type. */
typedef struct lk_gated_residual_params {
  int64_t struct_size LK_SIZE_OF(lk_gated_residual_params);
  lk_tensor x, gate, z, y;
  int32_t rms;
  float eps;        /* with rms */
  lk_tensor weight; /* optional, with rms */
} lk_gated_residual_params;
LK_API lk_status lk_gated_residual(lk_context*, const lk_gated_residual_params*);

/* dz = gate * dy, with rms taken through the norm; dgate = sum over S of dy * z, or of dy * rms_norm(z). dx is dy. */
typedef struct lk_gated_residual_backward_params {
  int64_t struct_size LK_SIZE_OF(lk_gated_residual_backward_params);
  lk_tensor dy;
  lk_tensor gate;      /* needed for dz */
  lk_tensor z;         /* needed for dgate, and with rms */
  lk_tensor dz, dgate; /* optional outputs */
  int32_t rms;
  float eps;        /* with rms */
  lk_tensor weight; /* optional, with rms; gets no gradient */
} lk_gated_residual_backward_params;
LK_API lk_status lk_gated_residual_backward(lk_context*, const lk_gated_residual_backward_params*);

/* y = act(a) * b, element by element, all of one shape; kind is LK_SILU, LK_GELU_ERF, LK_GELU_TANH or LK_SIGMOID.
 * act(a) is rounded to a's type, as if it had been stored. In lines: a, b, y. */
typedef struct lk_gated_activation_params {
  int64_t struct_size LK_SIZE_OF(lk_gated_activation_params);
  lk_unary_kind kind;
  lk_tensor a, b, y;
} lk_gated_activation_params;
LK_API lk_status lk_gated_activation(lk_context*, const lk_gated_activation_params*);

/* da = (dy * b) * act'(a), db = dy * act(a); the factors dy * b and act(a) are rounded to a's type. In lines: all. */
typedef struct lk_gated_activation_backward_params {
  int64_t struct_size LK_SIZE_OF(lk_gated_activation_backward_params);
  lk_unary_kind kind;
  lk_tensor dy, a;
  lk_tensor b;      /* needed for da */
  lk_tensor da, db; /* optional outputs */
} lk_gated_activation_backward_params;
LK_API lk_status lk_gated_activation_backward(lk_context*, const lk_gated_activation_backward_params*);

/* y = condition != 0 ? a : b, right-aligned broadcast. a, b and y are floating, or all i32; condition is any type but
 * fp8 and i8. */
typedef struct lk_where_params {
  int64_t struct_size LK_SIZE_OF(lk_where_params);
  lk_tensor condition, a, b, y;
} lk_where_params;
LK_API lk_status lk_where(lk_context*, const lk_where_params*);

/* Converts the storage type, rounding to nearest even; also integers to and from floats. An nf4 x becomes f32, f16 or
 * bf16. */
typedef struct lk_cast_params {
  int64_t struct_size LK_SIZE_OF(lk_cast_params);
  lk_tensor x;
  lk_tensor scale; /* optional but for nf4: that of a weight in fewer bits, with dims[0] rows */
  lk_tensor y;
} lk_cast_params;
LK_API lk_status lk_cast(lk_context*, const lk_cast_params*);

/* ---- programs of elementwise operations ------------------------------------------------------------- */

/* A program runs over all elements of one shape in a single pass over memory: what lies between its instructions is
 * float32 and never stored. Results have the bits that the operations give one after the other (lk_unary, lk_binary,
 * lk_where, lk_cast, lk_round_stochastic, lk_quantize_blockwise, lk_dequantize_blockwise), where LK_POINTWISE_ROUND
 * stands for an intermediate that they would store in f16 or bf16. Values are numbered: first the inputs, then the
 * results of the instructions, in order. */
#define LK_POINTWISE_MAX_INPUTS 24
#define LK_POINTWISE_MAX_OUTPUTS 12
#define LK_POINTWISE_MAX_INSTRUCTIONS 64

typedef int32_t lk_pointwise_code;
#define LK_POINTWISE_UNARY 0      /* of operand 0; kind is an lk_unary_kind, a and b are its numbers */
#define LK_POINTWISE_BINARY 1     /* of operands 0 and 1; kind is an lk_binary_kind; a comparison gives 1 or 0 */
#define LK_POINTWISE_WHERE 2      /* operand 0 != 0 ? operand 1 : operand 2 */
#define LK_POINTWISE_ROUND 3      /* operand 0 rounded to nearest even in f16 or bf16, of which kind is the lk_dtype */
#define LK_POINTWISE_STOCHASTIC 4 /* operand 0 rounded to bf16 at random; operand 1 is an input, the step, i32 [1] */

typedef struct lk_pointwise_instruction {
  lk_pointwise_code code;
  int32_t kind;
  int32_t operands[3]; /* numbers of values before this one */
  float a, b;
  uint64_t seed, stream; /* of LK_POINTWISE_STOCHASTIC */
} lk_pointwise_instruction;

/* f32, f16, bf16, i32 or u8 as float32, in a shape that broadcasts to that of the outputs; or, where scales is there,
 * codes of lk_quantize_blockwise in the shape of the outputs. */
typedef struct lk_pointwise_input {
  lk_tensor x;
  lk_tensor scales;  /* optional, f32 [ceil(n / 256)] */
  int32_t is_signed; /* of codes */
} lk_pointwise_input;

typedef int32_t lk_pointwise_reduction;
#define LK_POINTWISE_STORE 0
#define LK_POINTWISE_SUM 1 /* as lk_reduce_sum, up to the order of the terms */
#define LK_POINTWISE_MAX 2 /* as lk_reduce_max */

/* A value in f32, f16, bf16, i32 or u8, as lk_cast stores it; or, where scales is there, as codes in u8; or reduced
 * over the axes where y, floating and of the program's rank, has 1. */
typedef struct lk_pointwise_output {
  int32_t value;
  lk_tensor y;
  lk_tensor scales;  /* optional, f32 [ceil(n / 256)] */
  int32_t is_signed; /* of codes */
  lk_pointwise_reduction reduction;
  float scale; /* of LK_POINTWISE_SUM: the factor of the sum */
} lk_pointwise_output;

/* Outputs that are not reduced have the program's shape. A program that reduces has no codes and rounds nothing at
 * random. In place allowed: y, where it is not reduced, may be the x of an input of its shape and type, scales the
 * scales of an input. On a GPU a program is compiled when it is first seen, by its instructions and the types and
 * broadcasting of its tensors: not while recording. There, reductions are made as the elements pass where the axes,
 * neighbours joined, are [outer, rows, columns] and each is over rows, columns or both; others store their terms first.
 */
typedef struct lk_pointwise_params {
  int64_t struct_size LK_SIZE_OF(lk_pointwise_params);
  const lk_pointwise_input* inputs;
  const lk_pointwise_instruction* instructions;
  const lk_pointwise_output* outputs;
  int32_t input_count, instruction_count, output_count;
  int32_t rank; /* of the program's shape; 0: it is that of outputs[0].y */
  int64_t dims[LK_MAX_RANK];
} lk_pointwise_params;
LK_API lk_status lk_pointwise(lk_context*, const lk_pointwise_params*);

/* ---- data movement ---------------------------------------------------------------------------------- */

/* y = x with axes reordered: y.dims[i] = x.dims[axes[i]]. Same dtype. */
typedef struct lk_permute_params {
  int64_t struct_size LK_SIZE_OF(lk_permute_params);
  lk_tensor x, y;
  int32_t axes[LK_MAX_RANK];
} lk_permute_params;
LK_API lk_status lk_permute(lk_context*, const lk_permute_params*);

/* Copies a block of `extent` from x at x_offset to y at y_offset; equal ranks, same dtype. The rest of y is
 * untouched. slice, split, concat, pad and every are made of it. In lines: x, y. */
typedef struct lk_copy_block_params {
  int64_t struct_size LK_SIZE_OF(lk_copy_block_params);
  lk_tensor x, y;
  int64_t extent[LK_MAX_RANK], x_offset[LK_MAX_RANK], y_offset[LK_MAX_RANK];
  int64_t x_step; /* from one element to the next along the last axis of x; 0 is 1 */
} lk_copy_block_params;
LK_API lk_status lk_copy_block(lk_context*, const lk_copy_block_params*);

typedef struct lk_fill_params {
  int64_t struct_size LK_SIZE_OF(lk_fill_params);
  lk_tensor y;
  double value;
} lk_fill_params;
LK_API lk_status lk_fill(lk_context*, const lk_fill_params*);

/* y = x repeated along the axes where x has 1 and y more (equal ranks). Both floating, or both i32. */
typedef struct lk_expand_params {
  int64_t struct_size LK_SIZE_OF(lk_expand_params);
  lk_tensor x, y;
} lk_expand_params;
LK_API lk_status lk_expand(lk_context*, const lk_expand_params*);

/* y[i, :] = table[ids[i], :]; ids i32, any shape; table [V, D]. An id outside the table is LK_E_INVALID on
 * the CPU; on a GPU, where the ids cannot be looked at, its row is NaN. */
typedef struct lk_embedding_params {
  int64_t struct_size LK_SIZE_OF(lk_embedding_params);
  lk_tensor ids, table, y;
} lk_embedding_params;
LK_API lk_status lk_embedding(lk_context*, const lk_embedding_params*);

/* y[b, k, ...] = x[b, index[b, k], ...]; x [B, S, ...], index i32 [B, K], y [B, K, ...]. index [B] takes one row of
 * each sample, y [B, ...]. x and y floating, or both i32. An index outside the rows is LK_E_INVALID on the CPU; on a
 * GPU its row of y is NaN (of i32: the lowest number), its row of dx the first one as NaN. */
typedef struct lk_gather_params {
  int64_t struct_size LK_SIZE_OF(lk_gather_params);
  lk_tensor x, index, y;
} lk_gather_params;
LK_API lk_status lk_gather(lk_context*, const lk_gather_params*);

/* dx[b, s, ...] = sum of dy[b, k, ...] over the k with index[b, k] == s, in the order of k. */
typedef struct lk_gather_backward_params {
  int64_t struct_size LK_SIZE_OF(lk_gather_backward_params);
  lk_tensor dy, index, dx;
} lk_gather_backward_params;
LK_API lk_status lk_gather_backward(lk_context*, const lk_gather_backward_params*);

/* The k largest of the last axis, largest first, equal ones by their place; NaN counts as larger than any number.
 * x [..., N], values [..., k], index i32 [..., k]. */
typedef struct lk_top_k_params {
  int64_t struct_size LK_SIZE_OF(lk_top_k_params);
  lk_tensor x, values, index;
} lk_top_k_params;
LK_API lk_status lk_top_k(lk_context*, const lk_top_k_params*);

/* dx = 0 but for dx[..., index[..., i]] = dvalues[..., i]. */
typedef struct lk_top_k_backward_params {
  int64_t struct_size LK_SIZE_OF(lk_top_k_backward_params);
  lk_tensor dvalues, index, dx;
} lk_top_k_backward_params;
LK_API lk_status lk_top_k_backward(lk_context*, const lk_top_k_backward_params*);

/* index[b] = first i with ids[b, i] == value, else the last position. ids i32 [B, L]. */
typedef struct lk_find_first_params {
  int64_t struct_size LK_SIZE_OF(lk_find_first_params);
  lk_tensor ids, index;
  int64_t value;
} lk_find_first_params;
LK_API lk_status lk_find_first(lk_context*, const lk_find_first_params*);

/* x [N, H, W, C] -> y [N, 2H, 2W, C], nearest. backward: dx = sum of the 2x2 block of dy. */
typedef struct lk_upsample_nearest2x_params {
  int64_t struct_size LK_SIZE_OF(lk_upsample_nearest2x_params);
  lk_tensor x, y;
} lk_upsample_nearest2x_params;
LK_API lk_status lk_upsample_nearest2x(lk_context*, const lk_upsample_nearest2x_params*);
LK_API lk_status lk_upsample_nearest2x_backward(lk_context*, const lk_upsample_nearest2x_params*); /* x = dy, y = dx */

/* ---- reductions and losses -------------------------------------------------------------------------- */

/* y = scale * sum of x over the axes where y has 1 and x more (equal ranks). Both floating, or both i32 with scale 1:
 * the sum is then exact modulo 2^32. */
typedef struct lk_reduce_sum_params {
  int64_t struct_size LK_SIZE_OF(lk_reduce_sum_params);
  lk_tensor x, y;
  float scale;
} lk_reduce_sum_params;
LK_API lk_status lk_reduce_sum(lk_context*, const lk_reduce_sum_params*);

/* y = the largest element of x over the axes where y has 1 and x more (equal ranks, both floating); NaN where one is
 * NaN. */
typedef struct lk_reduce_max_params {
  int64_t struct_size LK_SIZE_OF(lk_reduce_max_params);
  lk_tensor x, y;
} lk_reduce_max_params;
LK_API lk_status lk_reduce_max(lk_context*, const lk_reduce_max_params*);

typedef int32_t lk_loss_kind;
#define LK_MSE 0
#define LK_HUBER 1 /* d^2/2 for |d| <= delta, else delta (|d| - delta/2) */
#define LK_L1 2
#define LK_PSEUDO_HUBER 3 /* sqrt(d^2 + delta^2) - delta */

/* loss f32 [1] = mean over all elements of weight * l(prediction - target) [B, ..., C]. */
typedef struct lk_loss_params {
  int64_t struct_size LK_SIZE_OF(lk_loss_params);
  lk_loss_kind kind;
  float delta;
  lk_tensor prediction, target;
  lk_tensor weight; /* optional f32: [B], or one for each place, [B, ..., 1] */
  lk_tensor loss;
  lk_tensor deltas; /* optional f32 [B]: of each sample in place of delta */
} lk_loss_params;
LK_API lk_status lk_loss(lk_context*, const lk_loss_params*);

/* dprediction = dloss[0] * d loss / d prediction. */
typedef struct lk_loss_backward_params {
  int64_t struct_size LK_SIZE_OF(lk_loss_backward_params);
  lk_loss_kind kind;
  float delta;
  lk_tensor dloss, prediction, target;
  lk_tensor weight; /* optional */
  lk_tensor dprediction;
  lk_tensor deltas; /* optional */
} lk_loss_backward_params;
LK_API lk_status lk_loss_backward(lk_context*, const lk_loss_backward_params*);

/* ---- training --------------------------------------------------------------------------------------- */

/* total = alpha * x (accumulate 0) or total += alpha * x (accumulate 1); total is f32. */
typedef struct lk_accumulate_params {
  int64_t struct_size LK_SIZE_OF(lk_accumulate_params);
  lk_tensor x, total;
  float alpha;
  int32_t accumulate;
} lk_accumulate_params;
LK_API lk_status lk_accumulate(lk_context*, const lk_accumulate_params*);

/* Over all tensors together (f32, in place): norm[0] = sqrt(sum of squares) / loss_scale[0], in float64 inside;
 * each gradient *= min(1, max_norm / (norm + 1e-6)) / loss_scale[0]. max_norm <= 0: no clipping. When the norm is not
 * finite the gradients are left as they are. (torch.nn.utils.clip_grad_norm_) */
typedef struct lk_clip_grad_norm_params {
  int64_t struct_size LK_SIZE_OF(lk_clip_grad_norm_params);
  lk_tensor* gradients;
  int64_t count;
  float max_norm;
  lk_tensor loss_scale; /* optional f32 [1]; 1 when absent */
  lk_tensor norm;       /* f32 [1] */
} lk_clip_grad_norm_params;
LK_API lk_status lk_clip_grad_norm(lk_context*, const lk_clip_grad_norm_params*);

/* Dynamic loss scaling (state f32 [2] = scale, clean steps): a non-finite norm halves the scale, `growth_interval`
 * clean steps double it. */
typedef struct lk_loss_scale_update_params {
  int64_t struct_size LK_SIZE_OF(lk_loss_scale_update_params);
  lk_tensor norm, state;
  float growth, backoff, largest;
  int32_t growth_interval;
} lk_loss_scale_update_params;
LK_API lk_status lk_loss_scale_update(lk_context*, const lk_loss_scale_update_params*);

/* Decoupled weight decay (Loshchilov & Hutter 2019), bias-corrected; all f32 of one shape; p, m, v in place.
 * lr and step are f32 [1]; step counts from 1. */
typedef struct lk_adamw_update_params {
  int64_t struct_size LK_SIZE_OF(lk_adamw_update_params);
  lk_tensor p, g, m, v, lr, step;
  float beta1, beta2, eps, weight_decay;
} lk_adamw_update_params;
LK_API lk_status lk_adamw_update(lk_context*, const lk_adamw_update_params*);

/* Block-wise 8-bit storage (Dettmers et al. 2022): x f32 -> codes u8 of its shape and scales f32 [ceil(n / 256)], one
 * for each 256 neighbouring elements: their largest magnitude. A code is the index of the nearest value of a map of 256
 * values, the "dynamic" one of [-1, 1] or of [0, 1]; halfway between two the one nearer zero. is_signed 0: numbers
 * below zero become zero. A block of zeros gives zeros, one with a NaN NaN everywhere. */
typedef struct lk_quantize_blockwise_params {
  int64_t struct_size LK_SIZE_OF(lk_quantize_blockwise_params);
  lk_tensor x, codes, scales;
  int32_t is_signed;
} lk_quantize_blockwise_params;
LK_API lk_status lk_quantize_blockwise(lk_context*, const lk_quantize_blockwise_params*);

/* y f32 = map[code] times the scale of its block. */
typedef struct lk_dequantize_blockwise_params {
  int64_t struct_size LK_SIZE_OF(lk_dequantize_blockwise_params);
  lk_tensor codes, scales, y;
  int32_t is_signed;
} lk_dequantize_blockwise_params;
LK_API lk_status lk_dequantize_blockwise(lk_context*, const lk_dequantize_blockwise_params*);

/* y bf16 = x f32 rounded to one of its two neighbours, at random, so that the mean is x; what fits is unchanged, beyond
 * the largest number lies infinity. Philox-4x32-10 keyed by seed, counter (element / 4, step[0], stream). */
typedef struct lk_round_stochastic_params {
  int64_t struct_size LK_SIZE_OF(lk_round_stochastic_params);
  lk_tensor x;
  lk_tensor step; /* i32 [1] */
  lk_tensor y;
  uint64_t seed, stream;
} lk_round_stochastic_params;
LK_API lk_status lk_round_stochastic(lk_context*, const lk_round_stochastic_params*);

/* y = 0 with probability p, else 1 / (1 - p): Philox-4x32-10 keyed by seed, counter (stream, step[0], element). */
typedef struct lk_dropout_mask_params {
  int64_t struct_size LK_SIZE_OF(lk_dropout_mask_params);
  lk_tensor step; /* i32 [1] */
  lk_tensor y;
  float p;
  uint64_t seed, stream;
} lk_dropout_mask_params;
LK_API lk_status lk_dropout_mask(lk_context*, const lk_dropout_mask_params*);

/* y = standard normal values: Box-Muller over Philox-4x32-10 keyed by seed, counter (element / 4, 0, stream). Values
 * agree between backends to float32 rounding. For tests and synthetic weights. */
typedef struct lk_random_normal_params {
  int64_t struct_size LK_SIZE_OF(lk_random_normal_params);
  lk_tensor y;
  float scale; /* standard deviation */
  uint64_t seed, stream;
} lk_random_normal_params;
LK_API lk_status lk_random_normal(lk_context*, const lk_random_normal_params*);

#ifdef __cplusplus
}
#endif
#endif
