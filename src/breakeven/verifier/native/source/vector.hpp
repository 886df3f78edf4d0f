// Short float vectors in GCC/Clang vector extensions: one source for AVX-512, AVX2, SSE2 and NEON.
// The fused multiply-add and what int8 needs are the only intrinsics.
#pragma once

#include <cstdint>
#include <cstring>

#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

namespace breakeven {

#if defined(__AVX512F__)
constexpr int kLanes = 16;     // floats in the widest register
constexpr int kRegisters = 32; // vector registers
#elif defined(__AVX__)
constexpr int kLanes = 8;
constexpr int kRegisters = 16;
#elif defined(__aarch64__)
constexpr int kLanes = 4;
constexpr int kRegisters = 32;
#else
constexpr int kLanes = 4;
constexpr int kRegisters = 16;
#endif

template <int L> struct Lanes;
template <> struct Lanes<4> {
  typedef float Floats __attribute__((vector_size(16)));
  typedef int32_t Ints __attribute__((vector_size(16)));
};
template <> struct Lanes<8> {
  typedef float Floats __attribute__((vector_size(32)));
  typedef int32_t Ints __attribute__((vector_size(32)));
};
template <> struct Lanes<16> {
  typedef float Floats __attribute__((vector_size(64)));
  typedef int32_t Ints __attribute__((vector_size(64)));
};
template <int L> using Floats = typename Lanes<L>::Floats;
template <int L> using Ints = typename Lanes<L>::Ints;

template <int L> inline Floats<L> load(const float *from) {
  Floats<L> value;
  std::memcpy(&value, from, sizeof value);
  return value;
}
template <int L> inline void store(float *to, Floats<L> value) {
  std::memcpy(to, &value, sizeof value);
}
template <int L> inline Floats<L> splat(float value) { return value - Floats<L>{}; } // - 0 is free

// a * b + c, rounded once where the processor can. Said explicitly, and compiled without implicit
// contraction: a compiler that fuses in one loop and not in another would change bits.
inline Floats<4> fused(Floats<4> a, Floats<4> b, Floats<4> c) {
#if defined(__aarch64__)
  return (Floats<4>)vfmaq_f32((float32x4_t)c, (float32x4_t)a, (float32x4_t)b);
#elif defined(__FMA__)
  return (Floats<4>)_mm_fmadd_ps((__m128)a, (__m128)b, (__m128)c);
#else
  return a * b + c;
#endif
}
inline Floats<8> fused(Floats<8> a, Floats<8> b, Floats<8> c) {
#if defined(__FMA__)
  return (Floats<8>)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)c);
#else
  return a * b + c;
#endif
}
inline Floats<16> fused(Floats<16> a, Floats<16> b, Floats<16> c) {
#if defined(__AVX512F__)
  return (Floats<16>)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c);
#else
  return a * b + c;
#endif
}

// L int8 numbers as floats, exactly. (Written with vector extensions, GCC 12 takes them one by one.)
template <int L> inline Floats<L> widened(const int8_t *from) {
  Floats<L> value;
#if defined(__AVX512F__)
  if constexpr (L == 16) {
    const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i *>(from));
    return (Floats<L>)_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(bytes));
  }
#endif
#if defined(__AVX2__)
  if constexpr (L == 8) {
    const __m128i bytes = _mm_loadl_epi64(reinterpret_cast<const __m128i *>(from));
    return (Floats<L>)_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(bytes));
  }
#endif
#if defined(__aarch64__)
  if constexpr (L == 4) {
    int32_t bytes;
    std::memcpy(&bytes, from, sizeof bytes);
    const int16x8_t words = vmovl_s8(vreinterpret_s8_s32(vdup_n_s32(bytes)));
    return (Floats<L>)vcvtq_f32_s32(vmovl_s16(vget_low_s16(words)));
  }
#endif
  for (int i = 0; i < L; i++) value[i] = from[i];
  return value;
}

// The nearest whole numbers (of magnitudes up to 2^22), halves to even.
template <int L> inline Ints<L> nearest(Floats<L> x) {
  const Floats<L> magic = splat<L>(12582912.0f); // 1.5 * 2^23: adding it rounds to an integer
  return (Ints<L>)(x + magic) - (Ints<L>)magic;
}

// The low bytes of L whole numbers. (Of a conversion GCC 12 makes one byte at a time.)
template <int L> inline void narrow(int8_t *to, Ints<L> value) {
#if defined(__AVX512F__)
  if constexpr (L == 16) {
    _mm_storeu_si128(reinterpret_cast<__m128i *>(to), _mm512_cvtepi32_epi8((__m512i)value));
    return;
  }
#endif
  for (int i = 0; i < L; i++) to[i] = int8_t(value[i]);
}

inline Ints<16> load_ints(const void *from) {
  Ints<16> value;
  std::memcpy(&value, from, sizeof value);
  return value;
}

// In each of 16 lanes the sum plus four products: unsigned bytes of `a`, signed ones of x [4].
inline Ints<16> products(Ints<16> sum, Ints<16> a, const int8_t *x) {
#if defined(__AVX512F__) && defined(__AVX512VNNI__)
  int32_t four;
  std::memcpy(&four, x, sizeof four);
  return (Ints<16>)_mm512_dpbusd_epi32((__m512i)sum, (__m512i)a, _mm512_set1_epi32(four));
#else
  for (int i = 0; i < 4; i++) sum += (a >> (8 * i) & 255) * x[i];
  return sum;
#endif
}

template <int L> inline Floats<L> select(Ints<L> mask, Floats<L> yes, Floats<L> no) {
  return (Floats<L>)((mask & (Ints<L>)yes) | (~mask & (Ints<L>)no));
}
template <int L> inline Floats<L> larger(Floats<L> a, Floats<L> b) { return a > b ? a : b; }

// e^x to about 1 ulp (Cody–Waite reduction, degree-6 polynomial after Cephes expf). Below -87.3,
// where the result leaves the normal floats, it is exactly 0: e^-inf too. e^0 is exactly 1.
template <int L> inline Floats<L> exponential(Floats<L> x) {
  const Ints<L> normal = x > splat<L>(-87.3f);
  x = select<L>(normal, x, splat<L>(0.0f));
  x = x < splat<L>(88.3f) ? x : splat<L>(88.3f);
  const float kRound = 12582912.0f; // 1.5 * 2^23: adding it rounds to an integer
  const Floats<L> shifted = fused(x, splat<L>(1.44269504088896341f), splat<L>(kRound));
  const Ints<L> power = (Ints<L>)shifted;
  const Floats<L> whole = shifted - kRound;
  Floats<L> r = fused(whole, splat<L>(-0.693359375f), x);
  r = fused(whole, splat<L>(2.12194440e-4f), r);
  Floats<L> p = splat<L>(1.9875691500e-4f);
  for (const float term :
       {1.3981999507e-3f, 8.3334519073e-3f, 4.1665795894e-2f, 1.6666665459e-1f, 5.0000001201e-1f})
    p = fused(p, r, splat<L>(term));
  p = fused(p, r * r, r) + 1.0f;
  const Ints<L> scale = (power << 23) + 0x3f800000; // 2^whole: the magic's own bits shift out
  return select<L>(normal, p * (Floats<L>)scale, splat<L>(0.0f));
}

// Transposes a 4 x 4 piece: from [4][from_step] to [4][to_step].
inline void transpose(const float *from, int64_t from_step, float *to, int64_t to_step) {
#if defined(__clang__) || __GNUC__ >= 12
#define BREAKEVEN_MIX(a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#else
#define BREAKEVEN_MIX(a, b, ...) __builtin_shuffle(a, b, Ints<4>{__VA_ARGS__})
#endif
  const Floats<4> a = load<4>(from), b = load<4>(from + from_step);
  const Floats<4> c = load<4>(from + 2 * from_step), d = load<4>(from + 3 * from_step);
  const Floats<4> ab = BREAKEVEN_MIX(a, b, 0, 4, 1, 5), cd = BREAKEVEN_MIX(c, d, 0, 4, 1, 5);
  const Floats<4> AB = BREAKEVEN_MIX(a, b, 2, 6, 3, 7), CD = BREAKEVEN_MIX(c, d, 2, 6, 3, 7);
  store<4>(to, BREAKEVEN_MIX(ab, cd, 0, 1, 4, 5));
  store<4>(to + to_step, BREAKEVEN_MIX(ab, cd, 2, 3, 6, 7));
  store<4>(to + 2 * to_step, BREAKEVEN_MIX(AB, CD, 0, 1, 4, 5));
  store<4>(to + 3 * to_step, BREAKEVEN_MIX(AB, CD, 2, 3, 6, 7));
#undef BREAKEVEN_MIX
}

// The largest of the lanes.
template <int L> inline float largest(Floats<L> value) {
#if defined(__AVX512F__)
  if constexpr (L == 16) return _mm512_reduce_max_ps((__m512)value);
#endif
  float most = value[0];
  for (int i = 1; i < L; i++) most = value[i] > most ? value[i] : most;
  return most;
}

template <int L> inline int32_t total(Ints<L> value) {
#if defined(__AVX512F__)
  if constexpr (L == 16) return _mm512_reduce_add_epi32((__m512i)value);
#endif
  int32_t sum = 0;
  for (int i = 0; i < L; i++) sum += value[i];
  return sum;
}

// Sum over the lanes in a fixed order.
template <int L> inline float total(Floats<L> value) {
  float lanes[L];
  store<L>(lanes, value);
  for (int half = L / 2; half > 0; half /= 2)
    for (int i = 0; i < half; i++) lanes[i] += lanes[i + half];
  return lanes[0];
}

} // namespace breakeven
