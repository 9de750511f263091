/* The bytes of each node: an area that is only read, with a pattern, and one that is written. */
#ifndef MEMORY_H
#define MEMORY_H

#include <stdbool.h>
#include <stdint.h>

#include "api.h"

#define SOURCE_SIZE (1u << 20)
#define TARGET_SIZE (2u << 20)

extern unsigned char *source_area[NODES], *target_area[NODES];

/* A range of memory. */
struct range {
    uint64_t start, length;
};

/* Maps the areas, before the second process starts. */
void map_areas(void);

/* Returns whether the range is within the area that is written, or the one that is read. */
bool in_area(int node, struct range range, bool target);

/* Returns the byte of the pattern at an address of the node's source area. */
unsigned char pattern_at(int node, uint64_t address);

#endif
