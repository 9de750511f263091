/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * uDAPL 2.0: handles, flags, memory segments. Part of dat.h.
 */
#ifndef _DAT_TYPES_H_
#define _DAT_TYPES_H_

#include <dat2/dat_error.h>
#include <dat2/dat_platform_specific.h>
#include <dat2/udat_config.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum dat_mem_type {
    DAT_MEM_TYPE_VIRTUAL        = 0x00,
    DAT_MEM_TYPE_LMR            = 0x01,
    DAT_MEM_TYPE_SHARED_VIRTUAL = 0x02
} DAT_MEM_TYPE;

typedef enum dat_handle_type {
    DAT_HANDLE_TYPE_CR,
    DAT_HANDLE_TYPE_EP,
    DAT_HANDLE_TYPE_EVD,
    DAT_HANDLE_TYPE_IA,
    DAT_HANDLE_TYPE_LMR,
    DAT_HANDLE_TYPE_PSP,
    DAT_HANDLE_TYPE_PZ,
    DAT_HANDLE_TYPE_RMR,
    DAT_HANDLE_TYPE_RSP,
    DAT_HANDLE_TYPE_CNO,
    DAT_HANDLE_TYPE_SRQ,
    DAT_HANDLE_TYPE_CSP,
    DAT_HANDLE_TYPE_EXTENSION_BASE
} DAT_HANDLE_TYPE;

/* Three substates or'ed: enabled or not, waitable or not, how it notifies. */
typedef enum dat_evd_state {
    DAT_EVD_STATE_ENABLED          = 0x01,
    DAT_EVD_STATE_DISABLED         = 0x02,
    DAT_EVD_STATE_WAITABLE         = 0x04,
    DAT_EVD_STATE_UNWAITABLE       = 0x08,
    DAT_EVD_STATE_CONFIG_NOTIFY    = 0x10,
    DAT_EVD_STATE_CONFIG_SOLICITED = 0x20,
    DAT_EVD_STATE_CONFIG_THRESHOLD = 0x30
} DAT_EVD_STATE;

typedef DAT_UINT64 DAT_PROVIDER_ATTR_MASK;

#define DAT_NAME_MAX_LENGTH 256
typedef char *DAT_NAME_PTR;

typedef struct dat_named_attr {
    const char *name;
    const char *value;
} DAT_NAMED_ATTR;

typedef enum dat_boolean {
    DAT_FALSE = 0,
    DAT_TRUE  = 1
} DAT_BOOLEAN;

#define DAT_IB_EXTENSION 1
#define DAT_IW_EXTENSION 2

typedef DAT_UINT32 DAT_HA_LB;
#define DAT_HA_LB_NONE ((DAT_HA_LB)0)
#define DAT_HA_LB_INTERCOMM ((DAT_HA_LB)1)
#define DAT_HA_LB_INTRACOMM ((DAT_HA_LB)2)

/* A value of the consumer, which is only passed on. */
typedef union dat_context {
    DAT_PVOID as_ptr;
    DAT_UINT64 as_64;
    DAT_UVERYLONG as_index;
} DAT_CONTEXT;
typedef DAT_CONTEXT DAT_DTO_COOKIE;
typedef DAT_CONTEXT DAT_RMR_COOKIE;

typedef enum dat_completion_flags {
    DAT_COMPLETION_DEFAULT_FLAG              = 0x00,
    DAT_COMPLETION_SUPPRESS_FLAG             = 0x01, /* No event on success */
    DAT_COMPLETION_SOLICITED_WAIT_FLAG       = 0x02, /* The sender selects the messages that wake the receiver */
    DAT_COMPLETION_UNSIGNALLED_FLAG          = 0x04, /* The event wakes no waiter */
    DAT_COMPLETION_BARRIER_FENCE_FLAG        = 0x08, /* After all earlier RDMA Reads */
    DAT_COMPLETION_EVD_THRESHOLD_FLAG        = 0x10, /* EP attribute: counts for the threshold */
    DAT_COMPLETION_LMR_INVALIDATE_FENCE_FLAG = 0x20 /* Only kDAPL */
} DAT_COMPLETION_FLAGS;

typedef DAT_UINT32 DAT_TIMEOUT; /* microseconds */
#define DAT_TIMEOUT_INFINITE ((DAT_TIMEOUT)~0)

/* The address of an object; its first word points to the function table of its provider. The exception is the IA handle of
 * dat_ia_open: a small integer, from 1, which libdat2 replaces by the provider's address. Calls of libdat2 take both. */
typedef DAT_PVOID DAT_HANDLE;
typedef DAT_HANDLE DAT_CR_HANDLE;
typedef DAT_HANDLE DAT_EP_HANDLE;
typedef DAT_HANDLE DAT_EVD_HANDLE;
typedef DAT_HANDLE DAT_IA_HANDLE;
typedef DAT_HANDLE DAT_LMR_HANDLE;
typedef DAT_HANDLE DAT_PSP_HANDLE;
typedef DAT_HANDLE DAT_PZ_HANDLE;
typedef DAT_HANDLE DAT_RMR_HANDLE;
typedef DAT_HANDLE DAT_RSP_HANDLE;
typedef DAT_HANDLE DAT_SRQ_HANDLE;
typedef DAT_HANDLE DAT_CSP_HANDLE;
#define DAT_HANDLE_NULL ((DAT_HANDLE)NULL)

/* Operation of a DTO completion. */
typedef enum dat_dtos {
    DAT_DTO_SEND,
    DAT_DTO_RDMA_WRITE,
    DAT_DTO_RDMA_READ,
    DAT_DTO_RECEIVE,
    DAT_DTO_RECEIVE_WITH_INVALIDATE,
    DAT_DTO_BIND_MW,
    DAT_DTO_LMR_FMR,
    DAT_DTO_LMR_INVALIDATE,
    DAT_DTO_EXTENSION_BASE
} DAT_DTOS;

typedef DAT_SOCK_ADDR *DAT_IA_ADDRESS_PTR;
typedef DAT_UINT64 DAT_CONN_QUAL;
typedef DAT_UINT64 DAT_PORT_QUAL;

typedef enum dat_qos {
    DAT_QOS_BEST_EFFORT     = 0x00,
    DAT_QOS_HIGH_THROUGHPUT = 0x01,
    DAT_QOS_LOW_LATENCY     = 0x02,
    DAT_QOS_ECONOMY         = 0x04,
    DAT_QOS_PREMIUM         = 0x08
} DAT_QOS;

typedef enum dat_connect_flags {
    DAT_CONNECT_DEFAULT_FLAG             = 0x00,
    DAT_CONNECT_MULTIPATH_REQUESTED_FLAG = 0x01,
    DAT_CONNECT_MULTIPATH_REQUIRED_FLAG  = 0x02
} DAT_CONNECT_FLAGS;
#define DAT_CONNECT_MULTIPATH_FLAG DAT_CONNECT_MULTIPATH_REQUESTED_FLAG /* its name in 1.2 */

typedef enum dat_close_flags {
    DAT_CLOSE_ABRUPT_FLAG   = 0x00,
    DAT_CLOSE_GRACEFUL_FLAG = 0x01
} DAT_CLOSE_FLAGS;
#define DAT_CLOSE_DEFAULT DAT_CLOSE_ABRUPT_FLAG

/* The event streams that an EVD may accept. */
typedef enum dat_evd_flags {
    DAT_EVD_SOFTWARE_FLAG   = 0x001,
    DAT_EVD_CR_FLAG         = 0x010,
    DAT_EVD_DTO_FLAG        = 0x020,
    DAT_EVD_CONNECTION_FLAG = 0x040,
    DAT_EVD_RMR_BIND_FLAG   = 0x080,
    DAT_EVD_ASYNC_FLAG      = 0x100,
    DAT_EVD_DEFAULT_FLAG    = 0x1F0, /* All but software events */
    DAT_EVD_EXTENSION_BASE  = 0x200
} DAT_EVD_FLAGS;

typedef enum dat_psp_flags {
    DAT_PSP_CONSUMER_FLAG = 0x00, /* The consumer provides the endpoint */
    DAT_PSP_PROVIDER_FLAG = 0x01 /* The provider creates the endpoint */
} DAT_PSP_FLAGS;

typedef DAT_UINT32 DAT_LMR_CONTEXT;
typedef DAT_UINT32 DAT_RMR_CONTEXT;
typedef DAT_UINT64 DAT_VLEN;
typedef DAT_UINT64 DAT_VADDR;
typedef DAT_UINT32 DAT_SEG_LENGTH;

typedef struct dat_provider_attr DAT_PROVIDER_ATTR;
typedef struct dat_evd_param DAT_EVD_PARAM;
typedef struct dat_lmr_param DAT_LMR_PARAM;

/* A segment of local memory. */
typedef struct dat_lmr_triplet {
    DAT_VADDR virtual_address;
    DAT_SEG_LENGTH segment_length;
    DAT_LMR_CONTEXT lmr_context;
} DAT_LMR_TRIPLET;

/* A segment of remote memory. */
typedef struct dat_rmr_triplet {
    DAT_VADDR virtual_address;
    DAT_SEG_LENGTH segment_length;
    DAT_RMR_CONTEXT rmr_context;
} DAT_RMR_TRIPLET;

typedef enum dat_mem_priv_flags {
    DAT_MEM_PRIV_NONE_FLAG         = 0x00,
    DAT_MEM_PRIV_LOCAL_READ_FLAG   = 0x01,
    DAT_MEM_PRIV_REMOTE_READ_FLAG  = 0x02,
    DAT_MEM_PRIV_LOCAL_WRITE_FLAG  = 0x10,
    DAT_MEM_PRIV_REMOTE_WRITE_FLAG = 0x20,
    DAT_MEM_PRIV_ALL_FLAG          = 0x33,
    DAT_MEM_PRIV_EXTENSION_BASE    = 0x40
} DAT_MEM_PRIV_FLAGS;
#define DAT_MEM_PRIV_READ_FLAG (DAT_MEM_PRIV_LOCAL_READ_FLAG | DAT_MEM_PRIV_REMOTE_READ_FLAG)
#define DAT_MEM_PRIV_WRITE_FLAG (DAT_MEM_PRIV_LOCAL_WRITE_FLAG | DAT_MEM_PRIV_REMOTE_WRITE_FLAG)

typedef enum dat_va_type {
    DAT_VA_TYPE_VA = 0x0, /* Remote addresses are virtual addresses */
    DAT_VA_TYPE_ZB = 0x1 /* Remote addresses count from 0 */
} DAT_VA_TYPE;

typedef enum dat_rmr_scope {
    DAT_RMR_SCOPE_EP,
    DAT_RMR_SCOPE_PZ,
    DAT_RMR_SCOPE_ANY
} DAT_RMR_SCOPE;

typedef enum dat_iov_ownership {
    DAT_IOV_CONSUMER       = 0x0, /* The consumer owns it when the post returns */
    DAT_IOV_PROVIDER_NOMOD = 0x1, /* The provider owns it until completion and does not change it */
    DAT_IOV_PROVIDER_MOD   = 0x2 /* The provider owns it until completion and may change it */
} DAT_IOV_OWNERSHIP;

typedef enum dat_ep_creator_for_psp {
    DAT_PSP_CREATES_EP_NEVER,
    DAT_PSP_CREATES_EP_IFASKED,
    DAT_PSP_CREATES_EP_ALWAYS
} DAT_EP_CREATOR_FOR_PSP;

typedef enum dat_extension {
    DAT_EXTENSION_NONE,
    DAT_EXTENSION_IB,
    DAT_EXTENSION_IW
} DAT_EXTENSION;

#ifdef __cplusplus
}
#endif

#endif /* _DAT_TYPES_H_ */
