//! The program `mysql-ha-agent`.

fn main() -> std::process::ExitCode {
    mysql_ha_agent::cli::main()
}
