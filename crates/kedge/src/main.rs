//! The kedge binary.

/// Cheap per allocation, and economical with memory under the mixed sizes of a cache.
#[cfg(feature = "mimalloc")]
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> std::process::ExitCode {
    kedge::cli::main(kedge_cluster::Release::CURRENT)
}
