#include "memory.h"

#include <sys/mman.h>

unsigned char *source_area[NODES], *target_area[NODES];

static unsigned char *mapped(size_t size)
{
    return mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
}

void map_areas(void)
{
    int node;
    uint32_t i;
    for (node = 0; node < NODES; node++) {
        source_area[node] = mapped(SOURCE_SIZE);
        target_area[node] = mapped(TARGET_SIZE);
        for (i = 0; i < SOURCE_SIZE; i++)
            source_area[node][i] = pattern_at(node, at(source_area[node] + i));
    }
}

bool in_area(int node, struct range range, bool target)
{
    uint64_t begin = at(target ? target_area[node] : source_area[node]);
    uint64_t size = target ? TARGET_SIZE : SOURCE_SIZE;
    return range.start >= begin && range.start + range.length <= begin + size;
}

unsigned char pattern_at(int node, uint64_t address)
{
    uint64_t offset = address - at(source_area[node]);
    return (unsigned char)((offset * 0x9e3779b97f4a7c15ull + (uint64_t)node * 0x1234567) >> 56);
}
