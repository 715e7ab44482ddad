/* tiles.h - the tiles of AMX (palette 1), as functions: what immintrin.h names _tile_*.
 *
 * Each thread has its own. Where the processor would fault (no configuration, one that it refuses,
 * tiles whose shapes do not fit each other), and where a family breaks its own rule that a
 * thread between pieces holds no tiles (they are configured again before they were released), the
 * process says so and aborts. */
#ifndef REFRAIN_TESTS_EMULATE_TILES_H
#define REFRAIN_TESTS_EMULATE_TILES_H

#include <stddef.h>

/* config: 64 bytes. All tiles are zeros then. */
void emulated_tile_loadconfig(const void *config);
void emulated_tile_release(void);
void emulated_tile_zero(int tile);
/* Rows of the tile, `stride` bytes apart in memory; past a row's end the tile gets zeros. */
void emulated_tile_loadd(int tile, const void *from, size_t stride);
void emulated_tile_stored(int tile, void *to, size_t stride);
/* sums[m][n] += the sum over k of a[m][k] * b[k][n], k in pairs: even and odd ones each in an f32
 * chain, added at the end. To nearest even; denormals are zeros. */
void emulated_tile_dpbf16ps(int sums, int a, int b);

#endif
