/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * uDAPL 1.2: names of vendors' attributes: none. Programs include this header.
 */
#ifndef _UDAT_VENDOR_SPECIFIC_H_
#define _UDAT_VENDOR_SPECIFIC_H_

#include <dat/dat_vendor_specific.h>



#endif /* _UDAT_VENDOR_SPECIFIC_H_ */
