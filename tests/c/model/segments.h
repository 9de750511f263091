/* The local segments of a post. */
#ifndef SEGMENTS_H
#define SEGMENTS_H

#include "posts.h"

/* Chooses up to `count` segments in LMRs of the PZ, of up to `longest` bytes each: in the target area to write to, else in the source
 * area. Writes them to `shared->local` and the post, whose outcome changes if one is wrong. */
void choose_segments(struct post *post, int node, const struct object *pz, bool to_write, int count, uint32_t longest);

#endif
