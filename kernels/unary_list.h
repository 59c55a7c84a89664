// Every elementwise function of one tensor with its functor, for which each backend has its own type; a and b are the
// numbers of lk_unary_params.
#pragma once

#define LK_FOR_EACH_UNARY(X)    \
  X(LK_SILU, Silu{})            \
  X(LK_GELU_ERF, GeluErf{})     \
  X(LK_GELU_TANH, GeluTanh{})   \
  X(LK_GELU_QUICK, GeluQuick{}) \
  X(LK_SIGMOID, Sigmoid{})      \
  X(LK_TANH, Tanh{})            \
  X(LK_RELU, Relu{})            \
  X(LK_EXP, Exp{})              \
  X(LK_SQRT, Sqrt{})            \
  X(LK_RSQRT, Rsqrt{})          \
  X(LK_ABS, Abs{})              \
  X(LK_SIGN, Sign{})            \
  X(LK_SQUARE, Square{})        \
  X(LK_AFFINE, (Affine{a, b}))  \
  X(LK_CLAMP, (Clamp{a, b}))    \
  X(LK_SIN, Sin{})              \
  X(LK_COS, Cos{})              \
  X(LK_LOG, Log{})              \
  X(LK_FLOOR, Floor{})          \
  X(LK_CEIL, Ceil{})            \
  X(LK_ROUND, Round{})
