//! What kind of processor this is, where that decides how memory is copied.

/// Returns whether the processor is one of AMD's, as far as it says so: SSE4a exists there only.
#[must_use]
pub fn is_amd() -> bool {
    #[cfg(target_arch = "x86_64")]
    return std::arch::is_x86_feature_detected!("sse4a");
    #[cfg(not(target_arch = "x86_64"))]
    false
}
