//! mysql-ha-agent
