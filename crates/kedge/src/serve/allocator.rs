//! The allocator of the binary.

/// Returns the allocator's unused memory to the system.
pub(super) fn return_memory() {
    #[cfg(feature = "mimalloc")]
    #[allow(unsafe_code)]
    // SAFETY: any thread may call it at any time, says its documentation.
    unsafe {
        libmimalloc_sys::mi_collect(true);
    }
}
