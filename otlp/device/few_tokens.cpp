// A few tokens times a matrix that lies in panels of 16 outputs, (out / 16, in, 16).
//
// Reading the matrix is what takes time, so it is read once, from four places at a time, which a
// processor fetches ahead better than one, and what tokens add up stays in registers.

#include <c10/util/Half.h>
#include <torch/csrc/inductor/aoti_torch/c/shim.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#if defined(__AVX512F__) || defined(__F16C__)
#include <immintrin.h>
#endif
#include <dlfcn.h>
#include <omp.h>

namespace {

// PyTorch's function of this name.  This library is open to all; were it linked with PyTorch's, these
// would be, too, and libraries that hold other versions of what is in them would call theirs.
bool complete = true;

template <typename Function>
Function* of_torch(const char* name) {
  static void* const torch = dlopen("libtorch_cpu.so", RTLD_LAZY | RTLD_NOLOAD);
  void* const found = torch ? dlsym(torch, name) : nullptr;
  complete = complete && found;
  return reinterpret_cast<Function*>(found);
}

#define OF_TORCH(name) const auto name = of_torch<decltype(aoti_torch_##name)>("aoti_torch_" #name)
OF_TORCH(dtype_float16);
OF_TORCH(dtype_bfloat16);
OF_TORCH(dtype_float32);
OF_TORCH(device_type_cpu);
OF_TORCH(get_size);
OF_TORCH(get_dtype);
OF_TORCH(get_data_ptr);
OF_TORCH(empty_strided);

constexpr int64_t LANES = 16, AHEAD = 2048;  // bytes fetched ahead
#if defined(__AVX512F__)
constexpr int ROOM = 28;  // sums of 16 outputs that fit into registers
#else
constexpr int ROOM = 6;
#endif

typedef float Lanes __attribute__((vector_size(LANES * sizeof(float)), aligned(4)));

struct BFloat16 {
  uint16_t upper;
};

inline Lanes load(const float* from) { return *reinterpret_cast<const Lanes*>(from); }

inline Lanes load(const c10::Half* from) {
#if defined(__AVX512F__)
  return (Lanes)_mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)));
#elif defined(__F16C__)
  __m256 halves[2];
  for (int at = 0; at < 2; ++at)
    halves[at] = _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from) + at));
  Lanes found;
  std::memcpy(&found, halves, sizeof found);
  return found;
#else
  Lanes found;
  for (int at = 0; at < LANES; ++at) found[at] = static_cast<float>(from[at]);
  return found;
#endif
}

inline Lanes load(const BFloat16* from) {
  typedef uint16_t Upper __attribute__((vector_size(LANES * sizeof(uint16_t)), aligned(2)));
  typedef uint32_t Whole __attribute__((vector_size(LANES * sizeof(uint32_t))));
  return (Lanes)(__builtin_convertvector(*reinterpret_cast<const Upper*>(from), Whole) << 16);
}

template <typename Each>
void in_threads(int64_t count, const Each& each) {
  if (omp_get_max_threads() == 1) {  // a team of one takes as long as a small product
    for (int64_t one = 0; one < count; ++one) each(one);
    return;
  }
#pragma omp parallel for
  for (int64_t one = 0; one < count; ++one) each(one);
}

// Tokens (count, inner), one after the other, and their outputs (count, outer).  A row of 16
// entries is followed by the next one of its panel `step` entries later.  The panel of output n
// begins at entry n `apart`; where panels are not padded the last one begins early, at `last`.
struct Task {
  const float* x;
  float* y;
  int64_t inner, outer, step, apart, last;
};

template <int TOKENS, int PANELS, typename Entry>
void panels(const Task& task, const Entry* matrix, const int64_t begin[PANELS]) {
  Lanes sums[TOKENS][PANELS] = {};
  const Entry* from[PANELS];
  for (int panel = 0; panel < PANELS; ++panel) from[panel] = matrix + begin[panel] * task.apart;
  for (int64_t at = 0; at < task.inner; ++at) {
    for (int panel = 0; panel < PANELS; ++panel) {
      __builtin_prefetch(reinterpret_cast<const char*>(from[panel]) + AHEAD);
      const Lanes row = load(from[panel]);
      from[panel] += task.step;
#pragma GCC unroll 32
      for (int token = 0; token < TOKENS; ++token)
        sums[token][panel] += row * task.x[token * task.inner + at];
    }
  }
#pragma GCC unroll 32
  for (int token = 0; token < TOKENS; ++token)
#pragma GCC unroll 4
    for (int panel = 0; panel < PANELS; ++panel) {
      float* to = task.y + token * task.outer + begin[panel];
      const int64_t most = task.outer - begin[panel];
      if (most >= LANES)
        std::memcpy(to, &sums[token][panel], sizeof(Lanes));
      else
        std::memcpy(to, &sums[token][panel], sizeof(float) * most);
    }
}

template <int TOKENS, typename Entry>
void multiply(const Task& task, const Entry* matrix) {
  constexpr int PANELS = std::min(ROOM / TOKENS, 4);
  const int64_t all = (task.outer + LANES - 1) / LANES, far = all / PANELS;
  in_threads(far, [&](int64_t one) {
    int64_t begin[PANELS];
    for (int panel = 0; panel < PANELS; ++panel)
      begin[panel] = std::min((panel * far + one) * LANES, task.last);
    panels<TOKENS, PANELS>(task, matrix, begin);
  });
  for (int64_t one = PANELS * far; one < all; ++one) {
    const int64_t begin = std::min(one * LANES, task.last);
    panels<TOKENS, 1>(task, matrix, &begin);
  }
}

// As many tokens at a time as there is room for.
template <typename Entry, int TOKENS = ROOM>
void all_tokens(Task task, int64_t tokens, const Entry* matrix) {
  for (; tokens >= TOKENS; tokens -= TOKENS) {
    multiply<TOKENS>(task, matrix);
    task.x += TOKENS * task.inner;
    task.y += TOKENS * task.outer;
  }
  if constexpr (TOKENS > 1)
    if (tokens) all_tokens<Entry, TOKENS - 1>(task, tokens, matrix);
}

int64_t size(AtenTensorHandle tensor, int64_t axis) {
  int64_t found;
  get_size(tensor, axis, &found);
  return found;
}

template <typename Entry = void>
Entry* data(AtenTensorHandle tensor) {
  void* found;
  get_data_ptr(tensor, &found);
  return static_cast<Entry*>(found);
}

}  // namespace

extern "C" bool few_tokens_can_be_called() { return complete; }

extern "C" AOTITorchError aoti_torch_cpu_few_tokens(
    AtenTensorHandle x, AtenTensorHandle packed, int64_t outer, AtenTensorHandle* made) {
  const int64_t tokens = size(x, 0), inner = size(x, 1);
  const int64_t shape[2] = {tokens, outer}, strides[2] = {outer, 1};
  empty_strided(2, shape, strides, dtype_float32(), device_type_cpu(), 0, made);
  const Task task{data<float>(x), data<float>(*made), inner, outer, LANES, inner, outer};
  int32_t kind;
  get_dtype(packed, &kind);
  if (kind == dtype_float16())
    all_tokens(task, tokens, data<c10::Half>(packed));
  else if (kind == dtype_bfloat16())
    all_tokens(task, tokens, data<BFloat16>(packed));
  else
    all_tokens(task, tokens, data<float>(packed));
  return AOTI_TORCH_SUCCESS;
}

extern "C" AOTITorchError aoti_torch_cpu_few_each(
    AtenTensorHandle x, AtenTensorHandle matrices, AtenTensorHandle* made) {
  const int64_t count = size(x, 0), tokens = size(x, 1), inner = size(x, 2);
  const int64_t outer = size(matrices, 2);
  const int64_t shape[3] = {count, tokens, outer}, strides[3] = {tokens * outer, outer, 1};
  empty_strided(3, shape, strides, dtype_float32(), device_type_cpu(), 0, made);
  const float *from = data<float>(x), *matrix = data<float>(matrices);
  float* to = data<float>(*made);
  in_threads(count, [&](int64_t one) {
    const Task task{from + one * tokens * inner, to + one * tokens * outer, inner, outer, outer, 1,
                    outer - LANES};
    all_tokens(task, tokens, matrix + one * inner * outer);
  });
  return AOTI_TORCH_SUCCESS;
}
