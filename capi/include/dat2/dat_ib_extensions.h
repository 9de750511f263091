/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * uDAPL 2.0: the InfiniBand extension (also on RoCE): atomics, immediate data, datagrams, counters.
 */
#ifndef _DAT_IB_EXTENSIONS_H_
#define _DAT_IB_EXTENSIONS_H_

#include <dat2/udat.h>

#ifdef __cplusplus
extern "C" {
#endif

#define DAT_IB_EXTENSION_VERSION 209 /* 2.0.9 */

/* Names of attributes that dat_ia_query may list; the value is TRUE or FALSE. */
#define DAT_IB_ATTR_COUNTERS       "DAT_COUNTERS"
#define DAT_IB_ATTR_FETCH_AND_ADD  "DAT_IB_FETCH_AND_ADD"
#define DAT_IB_ATTR_CMP_AND_SWAP   "DAT_IB_CMP_AND_SWAP"
#define DAT_IB_ATTR_IMMED_DATA     "DAT_IB_IMMED_DATA"
#define DAT_IB_ATTR_UD             "DAT_IB_UD"
#define DAT_IB_COLL_SET_CLOCK      "DAT_COLL_SET_CLOCK"
#define DAT_IB_COLL_READ_CLOCK     "DAT_COLL_READ_CLOCK"
#define DAT_IB_COLL_BROADCAST      "DAT_COLL_BROADCAST"
#define DAT_IB_COLL_BARRIER        "DAT_COLL_BARRIER"
#define DAT_IB_COLL_SCATTER        "DAT_COLL_SCATTER"
#define DAT_IB_COLL_SCATTERV       "DAT_COLL_SCATTERV"
#define DAT_IB_COLL_GATHER         "DAT_COLL_GATHER"
#define DAT_IB_COLL_GATHERV        "DAT_COLL_GATHERV"
#define DAT_IB_COLL_ALLGATHER      "DAT_COLL_ALLGATHER"
#define DAT_IB_COLL_ALLGATHERV     "DAT_COLL_ALLGATHERV"
#define DAT_IB_COLL_ALLTOALL       "DAT_COLL_ALLTOALL"
#define DAT_IB_COLL_ALLTOALLV      "DAT_COLL_ALLTOALLV"
#define DAT_IB_COLL_REDUCE         "DAT_COLL_REDUCE"
#define DAT_IB_COLL_ALLREDUCE      "DAT_COLL_ALLREDUCE"
#define DAT_IB_COLL_REDUCE_SCATTER "DAT_COLL_REDUCE_SCATTER"
#define DAT_IB_COLL_SCAN           "DAT_COLL_SCAN"

typedef DAT_HANDLE DAT_IB_COLLECTIVE_HANDLE;

typedef enum dat_ib_event_number {
    DAT_IB_DTO_EVENT                       = DAT_IB_EXTENSION_RANGE_BASE,
    DAT_IB_UD_CONNECTION_REQUEST_EVENT,
    DAT_IB_UD_CONNECTION_EVENT_ESTABLISHED,
    DAT_IB_UD_CONNECTION_REJECT_EVENT,
    DAT_IB_UD_CONNECTION_ERROR_EVENT,
    DAT_IB_COLLECTIVE_EVENT
} DAT_IB_EVENT_NUMBER;

/* Operations of dat_extension_op. */
typedef enum dat_ib_op {
    DAT_IB_FETCH_AND_ADD_OP,
    DAT_IB_CMP_AND_SWAP_OP,
    DAT_IB_RDMA_WRITE_IMMED_OP,
    DAT_IB_UD_SEND_OP,
    DAT_IB_QUERY_COUNTERS_OP,
    DAT_IB_PRINT_COUNTERS_OP,
    DAT_IB_COLLECTIVE_CREATE_MEMBER_OP,
    DAT_IB_COLLECTIVE_FREE_MEMBER_OP,
    DAT_IB_COLLECTIVE_CREATE_GROUP_OP,
    DAT_IB_COLLECTIVE_FREE_GROUP_OP,
    DAT_IB_COLLECTIVE_SET_CLOCK_OP,
    DAT_IB_COLLECTIVE_READ_CLOCK_OP,
    DAT_IB_COLLECTIVE_SCATTER_OP,
    DAT_IB_COLLECTIVE_SCATTERV_OP,
    DAT_IB_COLLECTIVE_GATHER_OP,
    DAT_IB_COLLECTIVE_GATHERV_OP,
    DAT_IB_COLLECTIVE_ALLGATHER_OP,
    DAT_IB_COLLECTIVE_ALLGATHERV_OP,
    DAT_IB_COLLECTIVE_ALLTOALL_OP,
    DAT_IB_COLLECTIVE_ALLTOALLV_OP,
    DAT_IB_COLLECTIVE_REDUCE_OP,
    DAT_IB_COLLECTIVE_ALLREDUCE_OP,
    DAT_IB_COLLECTIVE_REDUCE_SCATTER_OP,
    DAT_IB_COLLECTIVE_SCAN_OP,
    DAT_IB_COLLECTIVE_BROADCAST_OP,
    DAT_IB_COLLECTIVE_BARRIER_OP,
    DAT_IB_START_COUNTERS_OP,
    DAT_IB_STOP_COUNTERS_OP,
    DAT_IB_UD_CM_FREE_OP,
    DAT_IB_UD_AH_FREE_OP,
    DAT_IB_OPEN_QUERY_OP                = DAT_OPEN_EXTENSION_BASE,
    DAT_IB_CLOSE_QUERY_OP               = DAT_CLOSE_EXTENSION_BASE
} DAT_IB_OP;

/* Types of an event's extension data. */
typedef enum dat_ib_ext_type {
    DAT_IB_FETCH_AND_ADD,
    DAT_IB_CMP_AND_SWAP,
    DAT_IB_RDMA_WRITE_IMMED,
    DAT_IB_RDMA_WRITE_IMMED_DATA,
    DAT_IB_RECV_IMMED_DATA,
    DAT_IB_UD_CONNECT_REQUEST,
    DAT_IB_UD_REMOTE_AH,
    DAT_IB_UD_PASSIVE_REMOTE_AH,
    DAT_IB_UD_SEND,
    DAT_IB_UD_RECV,
    DAT_IB_UD_CONNECT_REJECT,
    DAT_IB_UD_CONNECT_ERROR,
    DAT_IB_COLLECTIVE_CREATE_STATUS,
    DAT_IB_COLLECTIVE_CREATE_DATA,
    DAT_IB_COLLECTIVE_CLOCK_SET_STATUS,
    DAT_IB_COLLECTIVE_SCATTER_STATUS,
    DAT_IB_COLLECTIVE_SCATTERV_STATUS,
    DAT_IB_COLLECTIVE_GATHER_STATUS,
    DAT_IB_COLLECTIVE_GATHERV_STATUS,
    DAT_IB_COLLECTIVE_ALLGATHER_STATUS,
    DAT_IB_COLLECTIVE_ALLGATHERV_STATUS,
    DAT_IB_COLLECTIVE_ALLTOALL_STATUS,
    DAT_IB_COLLECTIVE_ALLTOALLV_STATUS,
    DAT_IB_COLLECTIVE_REDUCE_STATUS,
    DAT_IB_COLLECTIVE_ALLREDUCE_STATUS,
    DAT_IB_COLLECTIVE_REDUCE_SCATTER_STATUS,
    DAT_IB_COLLECTIVE_SCAN_STATUS,
    DAT_IB_COLLECTIVE_BROADCAST_STATUS,
    DAT_IB_COLLECTIVE_BARRIER_STATUS
} DAT_IB_EXT_TYPE;

typedef enum dat_ib_status {
    DAT_OP_SUCCESS       = 0,
    DAT_IB_OP_ERR,
    DAT_IB_COLL_COMP_ERR
} DAT_IB_STATUS;

typedef enum dat_ib_return {
    DAT_IB_ERR            = DAT_EXTENSION_BASE,
    DAT_IB_COLLECTIVE_ERR
} DAT_IB_RETURN;

/* Continues DAT_DTOS. */
typedef enum dat_ib_dtos {
    DAT_IB_DTO_RDMA_WRITE_IMMED = DAT_DTO_EXTENSION_BASE,
    DAT_IB_DTO_RECV_IMMED,
    DAT_IB_DTO_FETCH_ADD,
    DAT_IB_DTO_CMP_SWAP,
    DAT_IB_DTO_RECV_MSG_IMMED,
    DAT_IB_DTO_SEND_UD,
    DAT_IB_DTO_RECV_UD,
    DAT_IB_DTO_RECV_UD_IMMED,
    DAT_IB_DTO_COLLECTIVES
} DAT_IB_DTOS;

typedef enum dat_ib_handle_type {
    DAT_IB_HANDLE_TYPE_EXT        = DAT_HANDLE_TYPE_EXTENSION_BASE,
    DAT_IB_HANDLE_TYPE_COLLECTIVE
} DAT_IB_HANDLE_TYPE;

typedef enum dat_ib_evd_extension_flags {
    DAT_IB_EVD_EXTENSION_FLAG = DAT_EVD_EXTENSION_BASE
} DAT_IB_EVD_EXTENSION_FLAGS;

typedef enum dat_ib_mem_priv_flags {
    DAT_IB_MEM_PRIV_REMOTE_ATOMIC = DAT_MEM_PRIV_EXTENSION_BASE
} DAT_IB_MEM_PRIV_FLAGS;

typedef enum dat_ib_service_type {
    DAT_IB_SERVICE_TYPE_UD = DAT_SERVICE_TYPE_EXTENSION_BASE
} DAT_IB_SERVICE_TYPE;

struct ibv_ah;

/* The peer of an unreliable datagram. */
typedef struct dat_ib_addr_handle {
    struct ibv_ah *ah; /* Address handle of the provider */
    DAT_UINT32 qpn;
    DAT_SOCK_ADDR6 ia_addr;
} DAT_IB_ADDR_HANDLE;

typedef struct dat_ib_immed_data {
    DAT_UINT32 data; /* Value that the sender passed */
} DAT_IB_IMMED_DATA;

typedef struct dat_ib_collective_event_data {
    DAT_HANDLE handle;
    DAT_CONTEXT context;
} DAT_IB_COLLECTIVE_EVENT_DATA;

/* Contents of DAT_EVENT's event_extension_data. */
typedef struct dat_ib_extension_event_data {
    DAT_IB_EXT_TYPE type;
    DAT_IB_STATUS status;
    union {
        DAT_IB_IMMED_DATA immed;
    } val;
    __extension__ union {
        DAT_IB_ADDR_HANDLE remote_ah;
        DAT_IB_COLLECTIVE_EVENT_DATA coll;
    };
    DAT_CONTEXT context;
} DAT_IB_EXTENSION_EVENT_DATA;

/* Returns the name of an extension's return code. */
static __inline__ DAT_RETURN dat_strerror_extension(DAT_IB_RETURN value, const char **message)
{
    if (DAT_GET_TYPE(value) == (DAT_UINT32)DAT_IB_ERR) {
        *message = "DAT_IB_ERR";
        return DAT_SUCCESS;
    }
    return dat_strerror((DAT_RETURN)value, message, NULL);
}

/* Returns the name of the status in an event's extension data. */
static __inline__ DAT_RETURN dat_strerror_ext_status(DAT_IB_STATUS value, const char **message)
{
    switch (value) {
    case DAT_OP_SUCCESS:
        *message = " ";
        return DAT_SUCCESS;
    case DAT_IB_OP_ERR:
        *message = "DAT_IB_OP_ERR";
        return DAT_SUCCESS;
    default:
        *message = "unknown extension status";
        return DAT_INVALID_PARAMETER;
    }
}

/* The operations. Each argument has exactly the type that the provider takes from the list. */
#define dat_ib_post_fetch_and_add(ep, add, local, cookie, remote, flags) \
    dat_extension_op((DAT_EP_HANDLE)(ep), DAT_IB_FETCH_AND_ADD_OP, (DAT_UINT64)(add), \
        (DAT_LMR_TRIPLET *)(local), (cookie), (DAT_RMR_TRIPLET *)(remote), \
        (DAT_COMPLETION_FLAGS)(flags))
#define dat_ib_post_cmp_and_swap(ep, compare, swap, local, cookie, remote, flags) \
    dat_extension_op((DAT_EP_HANDLE)(ep), DAT_IB_CMP_AND_SWAP_OP, (DAT_UINT64)(compare), \
        (DAT_UINT64)(swap), (DAT_LMR_TRIPLET *)(local), (cookie), (DAT_RMR_TRIPLET *)(remote), \
        (DAT_COMPLETION_FLAGS)(flags))
#define dat_ib_post_rdma_write_immed(ep, segments, local, cookie, remote, immediate, flags) \
    dat_extension_op((DAT_EP_HANDLE)(ep), DAT_IB_RDMA_WRITE_IMMED_OP, (DAT_COUNT)(segments), \
        (DAT_LMR_TRIPLET *)(local), (cookie), (DAT_RMR_TRIPLET *)(remote), \
        (DAT_UINT32)(immediate), (DAT_COMPLETION_FLAGS)(flags))
#define dat_ib_post_send_ud(ep, segments, local, to, cookie, flags) \
    dat_extension_op((DAT_EP_HANDLE)(ep), DAT_IB_UD_SEND_OP, (DAT_COUNT)(segments), \
        (DAT_LMR_TRIPLET *)(local), (DAT_IB_ADDR_HANDLE *)(to), (cookie), \
        (DAT_COMPLETION_FLAGS)(flags))
#define dat_ib_post_recv_ud dat_ep_post_recv
#define dat_ib_ud_cm_free(ep, cm) \
    dat_extension_op((DAT_EP_HANDLE)(ep), DAT_IB_UD_CM_FREE_OP, (cm))
#define dat_ib_ud_ah_free(ep, ah) \
    dat_extension_op((DAT_EP_HANDLE)(ep), DAT_IB_UD_AH_FREE_OP, (DAT_IB_ADDR_HANDLE *)(ah))

/* Queries an IA by name without dat_ia_open. The handle is for dat_ib_close_query only. */
#define dat_ib_open_query(name, ia, ia_mask, ia_attr, provider_mask, provider_attr) \
    dat_extension_op((DAT_HANDLE)(NULL), DAT_IB_OPEN_QUERY_OP, (DAT_NAME_PTR)(name), \
        (DAT_HANDLE *)(ia), (DAT_IA_ATTR_MASK)(ia_mask), (DAT_IA_ATTR *)(ia_attr), \
        (DAT_PROVIDER_ATTR_MASK)(provider_mask), (DAT_PROVIDER_ATTR *)(provider_attr))
#define dat_ib_close_query(ia) \
    dat_extension_op((DAT_HANDLE)(ia), DAT_IB_CLOSE_QUERY_OP)

#ifdef __cplusplus
}
#endif

#include <dat2/dat_ib_collectives.h>
#include <dat2/dat_ib_counters.h>

#endif /* _DAT_IB_EXTENSIONS_H_ */
