/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * uDAPL 2.0: collectives of the InfiniBand extension. Part of dat_ib_extensions.h.
 */
#ifndef _DAT_IB_COLLECTIVES_H_
#define _DAT_IB_COLLECTIVES_H_

#include <dat2/dat_ib_extensions.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum dat_ib_collective_data_type {
    DAT_IB_COLLECTIVE_TYPE_INT8,
    DAT_IB_COLLECTIVE_TYPE_UINT8,
    DAT_IB_COLLECTIVE_TYPE_INT16,
    DAT_IB_COLLECTIVE_TYPE_UINT16,
    DAT_IB_COLLECTIVE_TYPE_INT32,
    DAT_IB_COLLECTIVE_TYPE_UINT32,
    DAT_IB_COLLECTIVE_TYPE_INT64,
    DAT_IB_COLLECTIVE_TYPE_UINT64,
    DAT_IB_COLLECTIVE_TYPE_FLOAT,
    DAT_IB_COLLECTIVE_TYPE_DOUBLE,
    DAT_IB_COLLECTIVE_TYPE_LONG_DOUBLE,
    DAT_IB_COLLECTIVE_TYPE_SHORT_INT,
    DAT_IB_COLLECTIVE_TYPE_2INT,
    DAT_IB_COLLECTIVE_TYPE_FLOAT_INT,
    DAT_IB_COLLECTIVE_TYPE_LONG_INT,
    DAT_IB_COLLECTIVE_TYPE_DOUBLE_INT
} DAT_IB_COLLECTIVE_DATA_TYPE;

typedef enum dat_ib_collective_reduce_data_op {
    DAT_IB_COLLECTIVE_REDUCE_OP_MAX,
    DAT_IB_COLLECTIVE_REDUCE_OP_MIN,
    DAT_IB_COLLECTIVE_REDUCE_OP_SUM,
    DAT_IB_COLLECTIVE_REDUCE_OP_PROD,
    DAT_IB_COLLECTIVE_REDUCE_OP_LAND,
    DAT_IB_COLLECTIVE_REDUCE_OP_BAND,
    DAT_IB_COLLECTIVE_REDUCE_OP_LOR,
    DAT_IB_COLLECTIVE_REDUCE_OP_BOR,
    DAT_IB_COLLECTIVE_REDUCE_OP_LXOR,
    DAT_IB_COLLECTIVE_REDUCE_OP_BXOR,
    DAT_IB_COLLECTIVE_REDUCE_OP_MAXLOC,
    DAT_IB_COLLECTIVE_REDUCE_OP_MINLOC
} DAT_IB_COLLECTIVE_REDUCE_DATA_OP;

typedef unsigned int DAT_IB_COLLECTIVE_RANK;
typedef unsigned int DAT_IB_COLLECTIVE_ID;
typedef void *DAT_IB_COLLECTIVE_MEMBER;

/* Distribution of the processes of a group on nodes. */
typedef struct dat_ib_collective_group {
    int local_size; /* Number of processes on this node */
    int local_rank; /* Rank of this process among them */
    int *local_ranks; /* Their global ranks */
    int external_size; /* Number of nodes */
    int external_rank; /* Rank of this process among the nodes' representatives, or -1 */
    int *external_ranks; /* Their global ranks */
    int *intranode_table; /* Local rank of each global rank, or -1 */
    int *internode_table; /* External rank of each global rank, or -1 */
    int is_comm_world;
} DAT_IB_COLLECTIVE_GROUP;

#define dat_ib_collective_create_member(ia, progress, member, size) \
    dat_extension_op((DAT_IA_HANDLE)(ia), DAT_IB_COLLECTIVE_CREATE_MEMBER_OP, (void *)(progress), \
        (DAT_IB_COLLECTIVE_MEMBER *)(member), (DAT_UINT32 *)(size))
#define dat_ib_collective_free_member(ia, member) \
    dat_extension_op((DAT_IA_HANDLE)(ia), DAT_IB_COLLECTIVE_FREE_MEMBER_OP, \
        (DAT_IB_COLLECTIVE_MEMBER)(member))
#define dat_ib_collective_create_group(members, count, self, id, info, evd, pz, context) \
    dat_extension_op((DAT_EVD_HANDLE)(evd), DAT_IB_COLLECTIVE_CREATE_GROUP_OP, \
        (DAT_IB_COLLECTIVE_MEMBER *)(members), (DAT_COUNT)(count), \
        (DAT_IB_COLLECTIVE_RANK)(self), (DAT_IB_COLLECTIVE_ID)(id), \
        (DAT_IB_COLLECTIVE_GROUP *)(info), (DAT_PZ_HANDLE)(pz), (context))
#define dat_ib_collective_free_group(group) \
    dat_extension_op((DAT_IB_COLLECTIVE_HANDLE)(group), DAT_IB_COLLECTIVE_FREE_GROUP_OP)
#define dat_ib_collective_set_clock(group, clock, context) \
    dat_extension_op((DAT_IB_COLLECTIVE_HANDLE)(group), DAT_IB_COLLECTIVE_SET_CLOCK_OP, \
        (DAT_UINT64)(clock), (context))
#define dat_ib_collective_read_clock(group, clock) \
    dat_extension_op((DAT_IB_COLLECTIVE_HANDLE)(group), DAT_IB_COLLECTIVE_READ_CLOCK_OP, \
        (DAT_UINT64 *)(clock))
#define dat_ib_collective_scatter(group, sendbuf, sendsize, recvbuf, recvsize, root, context, \
        flags) \
    dat_extension_op((DAT_IB_COLLECTIVE_HANDLE)(group), DAT_IB_COLLECTIVE_SCATTER_OP, \
        (DAT_PVOID)(sendbuf), (DAT_COUNT)(sendsize), (DAT_PVOID)(recvbuf), (DAT_COUNT)(recvsize), \
        (DAT_IB_COLLECTIVE_RANK)(root), (context), (DAT_COMPLETION_FLAGS)(flags))
#define dat_ib_collective_scatterv(group, sendbuf, sendsizes, displs, recvbuf, recvsize, root, \
        context, flags) \
    dat_extension_op((DAT_IB_COLLECTIVE_HANDLE)(group), DAT_IB_COLLECTIVE_SCATTERV_OP, \
        (DAT_PVOID)(sendbuf), (DAT_COUNT *)(sendsizes), (DAT_COUNT *)(displs), \
        (DAT_PVOID)(recvbuf), (DAT_COUNT)(recvsize), (DAT_IB_COLLECTIVE_RANK)(root), (context), \
        (DAT_COMPLETION_FLAGS)(flags))
#define dat_ib_collective_gather(group, sendbuf, sendsize, recvbuf, recvsize, root, context, \
        flags) \
    dat_extension_op((DAT_IB_COLLECTIVE_HANDLE)(group), DAT_IB_COLLECTIVE_GATHER_OP, \
        (DAT_PVOID)(sendbuf), (DAT_COUNT)(sendsize), (DAT_PVOID)(recvbuf), (DAT_COUNT)(recvsize), \
        (DAT_IB_COLLECTIVE_RANK)(root), (context), (DAT_COMPLETION_FLAGS)(flags))
#define dat_ib_collective_gatherv(group, sendbuf, sendsize, recvbuf, recvsizes, displs, root, \
        context, flags) \
    dat_extension_op((DAT_IB_COLLECTIVE_HANDLE)(group), DAT_IB_COLLECTIVE_GATHERV_OP, \
        (DAT_PVOID)(sendbuf), (DAT_COUNT)(sendsize), (DAT_PVOID)(recvbuf), \
        (DAT_COUNT *)(recvsizes), (DAT_COUNT *)(displs), (DAT_IB_COLLECTIVE_RANK)(root), \
        (context), (DAT_COMPLETION_FLAGS)(flags))
#define dat_ib_collective_allgather(group, sendbuf, sendsize, recvbuf, recvsize, context, flags) \
    dat_extension_op((DAT_IB_COLLECTIVE_HANDLE)(group), DAT_IB_COLLECTIVE_ALLGATHER_OP, \
        (DAT_PVOID)(sendbuf), (DAT_COUNT)(sendsize), (DAT_PVOID)(recvbuf), (DAT_COUNT)(recvsize), \
        (context), (DAT_COMPLETION_FLAGS)(flags))
#define dat_ib_collective_allgatherv(group, sendbuf, sendsize, recvbuf, recvsizes, displs, \
        context, flags) \
    dat_extension_op((DAT_IB_COLLECTIVE_HANDLE)(group), DAT_IB_COLLECTIVE_ALLGATHERV_OP, \
        (DAT_PVOID)(sendbuf), (DAT_COUNT)(sendsize), (DAT_PVOID)(recvbuf), \
        (DAT_COUNT *)(recvsizes), (DAT_COUNT *)(displs), (context), (DAT_COMPLETION_FLAGS)(flags))
#define dat_ib_collective_alltoall(group, sendbuf, sendsize, recvbuf, recvsize, context, flags) \
    dat_extension_op((DAT_IB_COLLECTIVE_HANDLE)(group), DAT_IB_COLLECTIVE_ALLTOALL_OP, \
        (DAT_PVOID)(sendbuf), (DAT_COUNT)(sendsize), (DAT_PVOID)(recvbuf), (DAT_COUNT)(recvsize), \
        (context), (DAT_COMPLETION_FLAGS)(flags))
#define dat_ib_collective_alltoallv(group, sendbuf, sendsizes, senddispls, recvbuf, recvsizes, \
        recvdispls, context, flags) \
    dat_extension_op((DAT_IB_COLLECTIVE_HANDLE)(group), DAT_IB_COLLECTIVE_ALLTOALLV_OP, \
        (DAT_PVOID)(sendbuf), (DAT_COUNT *)(sendsizes), (DAT_COUNT *)(senddispls), \
        (DAT_PVOID)(recvbuf), (DAT_COUNT *)(recvsizes), (DAT_COUNT *)(recvdispls), (context), \
        (DAT_COMPLETION_FLAGS)(flags))
#define dat_ib_collective_reduce(group, sendbuf, sendsize, recvbuf, recvsize, reduce_op, type, \
        root, context, flags) \
    dat_extension_op((DAT_IB_COLLECTIVE_HANDLE)(group), DAT_IB_COLLECTIVE_REDUCE_OP, \
        (DAT_PVOID)(sendbuf), (DAT_COUNT)(sendsize), (DAT_PVOID)(recvbuf), (DAT_COUNT)(recvsize), \
        (DAT_IB_COLLECTIVE_REDUCE_DATA_OP)(reduce_op), (DAT_IB_COLLECTIVE_DATA_TYPE)(type), \
        (DAT_IB_COLLECTIVE_RANK)(root), (context), (DAT_COMPLETION_FLAGS)(flags))
#define dat_ib_collective_allreduce(group, sendbuf, sendsize, recvbuf, recvsize, reduce_op, \
        type, context, flags) \
    dat_extension_op((DAT_IB_COLLECTIVE_HANDLE)(group), DAT_IB_COLLECTIVE_ALLREDUCE_OP, \
        (DAT_PVOID)(sendbuf), (DAT_COUNT)(sendsize), (DAT_PVOID)(recvbuf), (DAT_COUNT)(recvsize), \
        (DAT_IB_COLLECTIVE_REDUCE_DATA_OP)(reduce_op), (DAT_IB_COLLECTIVE_DATA_TYPE)(type), \
        (context), (DAT_COMPLETION_FLAGS)(flags))
#define dat_ib_collective_reduce_scatter(group, sendbuf, sendsize, recvbuf, recvsizes, \
        reduce_op, type, context, flags) \
    dat_extension_op((DAT_IB_COLLECTIVE_HANDLE)(group), DAT_IB_COLLECTIVE_REDUCE_SCATTER_OP, \
        (DAT_PVOID)(sendbuf), (DAT_COUNT)(sendsize), (DAT_PVOID)(recvbuf), \
        (DAT_COUNT *)(recvsizes), (DAT_IB_COLLECTIVE_REDUCE_DATA_OP)(reduce_op), \
        (DAT_IB_COLLECTIVE_DATA_TYPE)(type), (context), (DAT_COMPLETION_FLAGS)(flags))
#define dat_ib_collective_scan(group, sendbuf, sendsize, recvbuf, recvsize, reduce_op, type, \
        context, flags) \
    dat_extension_op((DAT_IB_COLLECTIVE_HANDLE)(group), DAT_IB_COLLECTIVE_SCAN_OP, \
        (DAT_PVOID)(sendbuf), (DAT_COUNT)(sendsize), (DAT_PVOID)(recvbuf), (DAT_COUNT)(recvsize), \
        (DAT_IB_COLLECTIVE_REDUCE_DATA_OP)(reduce_op), (DAT_IB_COLLECTIVE_DATA_TYPE)(type), \
        (context), (DAT_COMPLETION_FLAGS)(flags))
#define dat_ib_collective_broadcast(group, buf, size, root, context, flags) \
    dat_extension_op((DAT_IB_COLLECTIVE_HANDLE)(group), DAT_IB_COLLECTIVE_BROADCAST_OP, \
        (DAT_PVOID)(buf), (DAT_COUNT)(size), (DAT_IB_COLLECTIVE_RANK)(root), (context), \
        (DAT_COMPLETION_FLAGS)(flags))
#define dat_ib_collective_barrier(group, context, flags) \
    dat_extension_op((DAT_IB_COLLECTIVE_HANDLE)(group), DAT_IB_COLLECTIVE_BARRIER_OP, (context), \
        (DAT_COMPLETION_FLAGS)(flags))

#ifdef __cplusplus
}
#endif

#endif /* _DAT_IB_COLLECTIVES_H_ */
