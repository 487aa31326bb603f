-- The accounts of mysql-ha-agent, with the least that each needs. Run once on the primary; replication carries it to the
-- replicas. Replace the two @…_PASSWORD@ placeholders. The agent's account is the same on all servers, and the agents
-- of the other hosts use it too (reading what a replica has received, making an old primary read-only, clone).
--
-- `tests/servers` makes the accounts of every live test from this very file, so a missing privilege fails the tests.
--
-- What the agent may do hangs on a role that is active in each of its sessions, not on the account. While an account statement
-- (CREATE USER, ALTER USER, GRANT) waits for a replica's acknowledgement, MySQL holds its lock on accounts: a session without an
-- active role then hangs in every statement whose privileges have to be looked up, the one that reads the server's state and the
-- one that degrades included; a session with one has its privileges with it. `check` says whether it is so (rule `active-role`).
CREATE ROLE IF NOT EXISTS 'mysql_ha_agent';

-- Where the heartbeat stands (`heartbeat.schema`): the agent makes the schema and its one table by itself, alters it on
-- upgrades and drops it on `leave`.
GRANT SELECT, INSERT, UPDATE, DELETE, CREATE, ALTER, DROP ON `mysql_ha`.* TO 'mysql_ha_agent';

-- What stands in the way of read-only: metadata locks, threads, transactions, and where a variable's value comes from.
GRANT SELECT ON performance_schema.* TO 'mysql_ha_agent';

-- RELOAD: RESET REPLICA and FLUSH.
-- PROCESS: the sessions of others, to tell a waiting commit or a backup's lock from a dead server.
-- SHUTDOWN: RESTART and SHUTDOWN where a repair needs one (clone).
-- REPLICATION CLIENT: SHOW REPLICA STATUS, SHOW BINARY LOG STATUS.
-- REPLICATION SLAVE: SHOW REPLICAS, and reading a binary log (`rejoin` keeps a copy of extra transactions).
-- EVENT: enable the events that replication disabled on the new primary.
GRANT RELOAD, PROCESS, SHUTDOWN, REPLICATION CLIENT, REPLICATION SLAVE, EVENT ON *.* TO 'mysql_ha_agent';

-- REPLICATION_SLAVE_ADMIN: CHANGE REPLICATION SOURCE, START and STOP REPLICA.
-- SYSTEM_VARIABLES_ADMIN: super_read_only, offline_mode and semi-sync; also SET PERSIST_ONLY of them.
-- PERSIST_RO_VARIABLES_ADMIN: SET PERSIST_ONLY of skip_replica_start, which is read-only at run time.
-- SESSION_VARIABLES_ADMIN: sql_log_bin=0 for the local write that tells a dead disk from a missing acknowledgement.
-- CONNECTION_ADMIN: KILL sessions of others, work under offline_mode and read_only, use the reserved connection.
-- SET_ANY_DEFINER (SET_USER_ID before 8.2): events that replication had disabled are enabled without changing their definer.
-- SYSTEM_USER: without it a session of root, such as a backup holding a global read lock, cannot be ended.
-- BACKUP_ADMIN: to be the donor of a clone. CLONE_ADMIN: to be its recipient.
GRANT REPLICATION_SLAVE_ADMIN, SYSTEM_VARIABLES_ADMIN, PERSIST_RO_VARIABLES_ADMIN, SESSION_VARIABLES_ADMIN,
      CONNECTION_ADMIN, SYSTEM_USER, BACKUP_ADMIN, CLONE_ADMIN, SET_ANY_DEFINER ON *.* TO 'mysql_ha_agent';

-- To shut a replica out whose host is gone: its own replication account is locked on the primary, its connections are ended, and
-- it is unlocked again when its agent is back. CREATE USER (with SYSTEM_USER above) lets the agent change any account:
-- leave these two lines out where that is too much. Then all works but this: such a replica stays in the sync set, and its vote
-- may be missing for a promotion when the primary is lost next (`check` says so).
GRANT CREATE USER ON *.* TO 'mysql_ha_agent';
GRANT SELECT (User, Host, account_locked) ON mysql.user TO 'mysql_ha_agent';

-- An account that exists keeps its password: ALTER USER sets it. One that was made by an older version of this file keeps what was
-- granted to it, which does no harm.
CREATE USER IF NOT EXISTS 'agent'@'%' IDENTIFIED BY '@AGENT_PASSWORD@';
GRANT 'mysql_ha_agent' TO 'agent'@'%';
ALTER USER 'agent'@'%' DEFAULT ROLE 'mysql_ha_agent';

-- The account with which servers replicate (`mysql.replication`). In `lossless` one for each host is better (repl_db1, repl_db2, …,
-- each named in that host's agent.yaml): only then can a server that cannot be reached be shut out, by locking its account.
CREATE USER IF NOT EXISTS 'repl'@'%' IDENTIFIED BY '@REPL_PASSWORD@';
GRANT REPLICATION SLAVE ON *.* TO 'repl'@'%';
