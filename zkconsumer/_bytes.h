/* Byte slices, and functions that load and store unaligned integers in native, big-endian or little-endian order. */
#ifndef ZKCONSUMER_BYTES_H
#define ZKCONSUMER_BYTES_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

typedef struct {
    const uint8_t *at;
    size_t size;
} Slice;

static inline size_t least(size_t a, size_t b) { return a < b ? a : b; }

#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
static inline uint32_t big32(uint32_t v) { return __builtin_bswap32(v); }
static inline uint64_t big64(uint64_t v) { return __builtin_bswap64(v); }
static inline uint32_t little32(uint32_t v) { return v; }
#else
static inline uint32_t big32(uint32_t v) { return v; }
static inline uint64_t big64(uint64_t v) { return v; }
static inline uint32_t little32(uint32_t v) { return __builtin_bswap32(v); }
#endif

static inline uint32_t load32(const uint8_t *p) {
    uint32_t v;
    memcpy(&v, p, 4);
    return v;
}

static inline uint64_t load64(const uint8_t *p) {
    uint64_t v;
    memcpy(&v, p, 8);
    return v;
}

static inline void store32(uint8_t *p, uint32_t v) { memcpy(p, &v, 4); }
static inline void store64(uint8_t *p, uint64_t v) { memcpy(p, &v, 8); }

static inline uint16_t load_big16(const uint8_t *p) { return (uint16_t)((p[0] << 8) | p[1]); }
static inline uint32_t load_big32(const uint8_t *p) { return big32(load32(p)); }
static inline uint64_t load_big64(const uint8_t *p) { return big64(load64(p)); }
static inline void store_big32(uint8_t *p, uint32_t v) { store32(p, big32(v)); }
static inline void store_big64(uint8_t *p, uint64_t v) { store64(p, big64(v)); }

static inline uint32_t load_little32(const uint8_t *p) { return little32(load32(p)); }
static inline void store_little32(uint8_t *p, uint32_t v) { store32(p, little32(v)); }

#endif
