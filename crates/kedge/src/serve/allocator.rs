//! The allocator of the binary.

/// Returns the allocator's unused memory to the system.
pub(super) fn return_memory() {
    #[cfg(feature = "mimalloc")]
    #[expect(unsafe_code, reason = "the function is foreign")]
    // SAFETY: the documentation of mimalloc allows the call on any thread at any time.
    unsafe {
        libmimalloc_sys::mi_collect(true);
    }
}
