/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * uDAPL 1.2: names of vendors' attributes. There are none; the file exists because programs include it.
 */
#ifndef _UDAT_VENDOR_SPECIFIC_H_
#define _UDAT_VENDOR_SPECIFIC_H_

#include <dat/dat_vendor_specific.h>



#endif /* _UDAT_VENDOR_SPECIFIC_H_ */
