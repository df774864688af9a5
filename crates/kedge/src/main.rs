//! The kedge binary.

fn main() -> std::process::ExitCode {
    kedge::cli::main(kedge_cluster::Release::CURRENT)
}
