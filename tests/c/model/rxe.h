/* What rdma_rxe does, seen with Linux 6.1, and what a device need not do: --rxe allows it. */
#ifndef RXE_H
#define RXE_H

#include "posts.h"

/* Returns whether a bind may fail; `former` is the bind before it of the same RMR, or NULL. */
bool rxe_may_refuse_bind(const struct post *bind, const struct post *former);

/* Returns whether a request with the key of the LMR or RMR, for bytes beyond it, may succeed. */
bool rxe_ignores_range_of(const struct object *one);

/* Returns whether a request may succeed in spite of a wrong segment. */
bool rxe_has_no_segments(const struct post *post);

/* Returns whether a request may fail with this status in place of its own. */
bool rxe_has_status(const struct post *post, int status);

/* Returns whether the endpoint, whose state was asked for last, may have its receives flushed before it is disconnected. */
bool rxe_flushes_early(const struct object *ep);

/* Returns whether the accept of the endpoint may take longer than others. */
bool rxe_accepts_long(const struct object *ep);

/* Returns whether an outstanding request, and each one behind it, may never complete while the connection lasts. */
bool rxe_may_be_stuck(const struct post *post);

#endif
